"""The published JSON Schema is the models' own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from harness.plan import matrix_json_schema
from harness.plan.axes import AXES
from harness.plan.models import MatrixModel
from harness.plan.recipes import RECIPE_MODELS
from harness.types import ARCHES, RECIPES

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "docs" / "schemas" / "matrix.schema.json"
RENEW = (
    "renew it: python -c \"from harness.plan.schema import schema_text; print(schema_text(), end='')\""
    " > docs/schemas/matrix.schema.json"
)


def properties(schema: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = schema["$defs"][name]["properties"]
    return found


def test_the_published_copy_is_current() -> None:
    assert json.loads(PUBLISHED.read_text()) == matrix_json_schema(), RENEW


def test_it_knows_every_key_and_every_fixed_name() -> None:
    schema = matrix_json_schema()
    assert set(schema["properties"]) == set(MatrixModel.model_fields)
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["schema_version"]
    for model in ("AxisValues", "AxisLists", "AxisPattern"):
        assert tuple(properties(schema, model)) == AXES
    values = properties(schema, "AxisValues")
    assert values["arch"]["enum"] == list(ARCHES)
    assert values["recipe"]["anyOf"][0]["enum"] == list(RECIPES)
    for name, model in RECIPE_MODELS.items():
        fields = properties(schema, model.__name__)
        assert fields["name"] == {"const": name}
        assert set(fields) == set(model.model_fields)


def test_names_that_can_be_registered_are_left_open() -> None:
    """Else adding a case would need a change of a generated file."""
    values = properties(matrix_json_schema(), "AxisValues")
    assert values["case"] == {"type": "string"}
    assert values["provider"]["anyOf"][0] == {"type": "string"}


def test_absent_keys_are_not_null() -> None:
    def nulls(value: Any, path: str = "") -> list[str]:
        if isinstance(value, dict):
            here = [path] if "default" in value and value["default"] is None else []
            return here + [one for key, item in value.items() for one in nulls(item, f"{path}/{key}")]
        return [one for item in value for one in nulls(item, path)] if isinstance(value, list) else []

    assert nulls(matrix_json_schema()) == []


def test_waivers_may_be_paths() -> None:
    assert matrix_json_schema()["properties"]["waivers"]["items"]["anyOf"][0]["type"] == "string"


def test_ci_yaml_names_the_schema() -> None:
    text = (ROOT / "configs" / "ci.yaml").read_text()
    assert "$schema=../docs/schemas/matrix.schema.json" in text
    assert set(yaml.safe_load(text)) <= set(matrix_json_schema()["properties"])
