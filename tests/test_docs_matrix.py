"""docs/matrix.md: its examples load, its messages are the real ones, its tables are complete."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from cases import CASES
from harness.plan.axes import AXES, SCHEMA_DEFAULTS, spell
from harness.plan.load import matrix_from_bytes
from harness.plan.models import MatrixModel
from harness.plan.recipes import RECIPE_MODELS
from harness.types import ARCHES, BACKENDS, DATA_KINDS, DTYPES, NESTINGS
from tests.support.plan_texts import errors_of

TEXT = (Path(__file__).resolve().parents[1] / "docs" / "matrix.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


def rows(heading: str) -> dict[str, str]:
    """A table's rows by the name in their first column."""
    body = TEXT.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    return {match[1]: match[2] for match in re.finditer(r"^\| `(\w+)` \|(.*)$", body, re.MULTILINE)}


@pytest.mark.parametrize("text", EXAMPLES, ids=["smallest", "everything", "includes"])
def test_examples_load(text: str) -> None:
    assert errors_of(text) == []


def test_the_numbers_of_cells_and_keys_are_true() -> None:
    smallest, everything, includes = (matrix_from_bytes(text.encode(), Path("m.yaml")) for text in EXAMPLES)
    assert len(smallest.full.cells) == 4
    by_case = Counter(cell.axes.case for cell in includes.full.cells)
    assert by_case == {"toy_linear": 6, "stack": 4 * len(CASES["stack"].variants), "multi_step": 2}
    assert set(everything.data) == set(MatrixModel.model_fields)
    assert set(rows("key")) == set(MatrixModel.model_fields)


def test_the_messages_are_real() -> None:
    wrong = "schema_version: 1\nmatrix:\n  recipe: [mxfp8_block]\n  fullgraph: [yes]\nexlude: []\n"
    shown = re.findall(r"^    mine\.yaml:(.*)$", TEXT, re.MULTILINE)
    variant = EXAMPLES[2] + "  - {case: stack, variant: hole, recipe: nvfp4_block_scaling}\n"
    assert [*errors_of(wrong), *errors_of(variant)] == shown


def test_every_axis_value_and_default_is_listed() -> None:
    table = rows("axis")
    assert tuple(table) == AXES
    for axis, names in {
        "arch": ARCHES, "nesting": NESTINGS, "backend": BACKENDS, "dtype": DTYPES, "data": DATA_KINDS,
    }.items():  # fmt: skip
        assert [name for name in names if f"`{name}`" not in table[axis]] == []
    for axis, default in SCHEMA_DEFAULTS.items():
        written = str(list(default)) if axis == "shape" else spell(default)
        shown = table[axis].split("|")[1].strip()
        assert shown == f"`{written}`" if written else "`" not in shown


def test_every_recipe_field_and_default_is_listed() -> None:
    table = rows("recipe")
    assert set(table) == set(RECIPE_MODELS)
    for name, model in RECIPE_MODELS.items():
        listed = dict(re.findall(r"`(\w+)` \(([\w.]+)", table[name]))
        real = {key: spell(field.default) for key, field in model.model_fields.items() if key != "name"}
        assert listed == real
