import dataclasses
import json
from pathlib import Path

import pytest

from harness.baseline import Baseline, BaselineCell
from harness.plan.baseline import baseline_text
from harness.report.run_info import RunRecord, run_record
from harness.report.schema import (
    BASELINE_CELL_FIELDS,
    BASELINE_FIELDS,
    RESULT_FIELDS,
    RUN_FIELDS,
    main,
    schema_text,
    schemas,
)
from harness.serialize import to_jsonable
from harness.types import CellResult, Evidence, Verdict
from tests.support.baselines import HERE, entry
from tests.support.report_fakes import mixed_results, one_of_each, run_of

PUBLISHED = Path(__file__).parent.parent / "docs" / "schemas"
RESULTS, RUN, BASELINE = "results.schema.json", "run.schema.json", "baseline.schema.json"


def valid(value, schema, root):
    """Enough of JSON Schema for ours: references, types, enumerations, required and typed members."""
    if "$ref" in schema:
        return valid(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return any(valid(value, one, root) for one in schema["anyOf"])
    kinds = {
        "null": type(None),
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "array": list,
        "object": dict,
    }
    kind = schema.get("type")
    if kind and (not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, list):
        return all(valid(item, schema.get("items", {}), root) for item in value)
    if isinstance(value, dict):
        own = schema.get("properties", {})
        members = all(
            valid(item, own.get(key, schema.get("additionalProperties", {})), root) for key, item in value.items()
        )
        return members and set(schema.get("required", ())) <= set(value)
    return True


@pytest.mark.parametrize("name", [RESULTS, RUN, BASELINE])
def test_the_published_schemas_are_current(name) -> None:
    published = (PUBLISHED / name).read_text()
    assert published == schema_text(schemas()[name]), "run: python -m harness.report.schema docs/schemas"


def test_what_is_written_is_valid() -> None:
    schema = schemas()[RESULTS]
    for result in (*mixed_results(), *one_of_each()):
        assert valid(to_jsonable(result), schema, schema)
    record = to_jsonable(run_record(run_of(mixed_results()), mixed_results()))
    assert valid(record, schemas()[RUN], schemas()[RUN])


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "fine"},
        {"evidence": "hearsay"},
        {"gates": "yes"},
        {"findings": [{"check": "c"}]},
        {"timing": {"total_s": "long"}},
        {"attempts": [{"verdict": "pass"}]},
    ],
)
def test_what_is_wrong_is_not_valid(change) -> None:
    schema = schemas()[RESULTS]
    assert not valid({**to_jsonable(mixed_results()[0]), **change}, schema, schema)
    missing = to_jsonable(mixed_results()[0])
    del missing["id"]
    assert not valid(missing, schema, schema)


BASELINE_TEXT = baseline_text(Baseline("m", HERE, (entry(0), entry(1, graphs=None, environment=HERE))))


def test_a_baseline_as_it_is_written_is_valid() -> None:
    schema = schemas()[BASELINE]
    assert valid(json.loads(BASELINE_TEXT), schema, schema)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"pass"', '"fail"'),
        ('"native"', '"hearsay"'),
        ('"graphs": 1', '"graphs": "1"'),
        ('"graphs": 1, ', ""),
        (' "schema_version": 1,', ""),
        (' "matrix": "m",', ""),
    ],
)
def test_a_broken_baseline_is_not_valid(old: str, new: str) -> None:
    schema = schemas()[BASELINE]
    assert old in BASELINE_TEXT
    assert not valid(json.loads(BASELINE_TEXT.replace(old, new)), schema, schema)


def test_every_field_is_described_and_nothing_else_is() -> None:
    assert set(RESULT_FIELDS) == {field.name for field in dataclasses.fields(CellResult)}
    assert set(RUN_FIELDS) == {field.name for field in dataclasses.fields(RunRecord)}
    assert set(BASELINE_FIELDS) == {field.name for field in dataclasses.fields(Baseline)}
    assert set(BASELINE_CELL_FIELDS) == {field.name for field in dataclasses.fields(BaselineCell)}


def test_changes_stay_additive() -> None:
    """A field without a default would make older files invalid: what is required is fixed."""
    required = ["id", "axes", "arch", "provider", "case", "verdict", "reason", "signature", "evidence"]
    assert schemas()[RESULTS]["required"] == required
    assert schemas()[RUN]["required"] == ["run_id", "matrix"]
    assert schemas()[BASELINE]["required"] == ["schema_version", "matrix", "environment", "cells"]
    cell_required = set(BASELINE_CELL_FIELDS) - {"environment"}
    assert set(schemas()[BASELINE]["$defs"]["BaselineCell"]["required"]) == cell_required
    for schema in schemas().values():
        assert schema.get("additionalProperties") is not False


def test_words_are_enumerated() -> None:
    definitions = schemas()[RESULTS]["$defs"]
    assert definitions["Verdict"]["enum"] == [verdict.value for verdict in Verdict]
    assert definitions["Evidence"]["enum"] == [evidence.value for evidence in Evidence]


def test_the_command_writes_all(tmp_path, capsys) -> None:
    assert main([str(tmp_path / "new")]) == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [BASELINE, RESULTS, RUN]
    assert json.loads((tmp_path / "new" / RUN).read_text()) == schemas()[RUN]
    assert main([]) == 4
    assert "usage" in capsys.readouterr().err
