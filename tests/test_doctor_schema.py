"""The published schema of doctor's JSON, and that what is printed is valid under it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from harness.doctor.children import Reply
from harness.doctor.schema import FIELDS, FILE, doctor_schema, main, report_json
from harness.doctor.types import Answer, Report, Status
from harness.report.schema import schema_text
from tests.support.doctoring import LAPTOP, WITHOUT_GPU, report_of
from tests.test_report_schema import valid

PUBLISHED = Path(__file__).parent.parent / "docs" / "schemas" / FILE
MATRIX = "require: native\nmatrix: {recipe: [mxfp8_block_scaling, float8_current_scaling]}\n"


def reports() -> list[Report]:
    dead = {"transformer_engine": Reply("", "was killed by SIGSEGV", ("last words",))}
    return [
        report_of(),
        report_of(machine=LAPTOP, torch=WITHOUT_GPU, env={"NVTE_X": "\x1b", "TORCHDYNAMO_DISABLE": "1"}),
        report_of(matrix=MATRIX, replies=dead),
        report_of(torch=Reply("", "died")),
    ]


def check(value: Any) -> bool:
    """Also of the matrix, which is null or an object: ``valid`` doesn't look into such a choice."""
    schema = doctor_schema()
    own = schema["$defs"]["MatrixReport"]
    return valid(value, schema, schema) and (value["matrix"] is None or valid(value["matrix"], own, schema))


def test_the_published_schema_is_current() -> None:
    assert PUBLISHED.read_text() == schema_text(doctor_schema()), "run: python -m harness.doctor.schema docs/schemas"


def test_what_is_printed_is_valid_and_plain_ascii() -> None:
    for report in reports():
        text = report_json(report)
        assert text.isascii()
        value = json.loads(text)
        assert check(value)
        assert (value["schema_version"], value["exit_code"]) == (1, report.exit_code)
    assert {name for report in reports() if (name := type(report.matrix).__name__)} == {"NoneType", "MatrixReport"}


@pytest.mark.parametrize(
    "change",
    [
        {"exit_code": "0"},
        {"stack": [{"topic": "torch", "status": "fine", "text": ""}]},
        {"stack": [{"topic": "torch"}]},
        {"providers": [{"provider": "p", "answer": "maybe"}]},
        {"gpus": [{"index": "0"}]},
        {"environment": [{"name": "N"}]},
        {"matrix": {"matrix": "m.yaml"}},
    ],
)
def test_what_is_wrong_is_not_valid(change: dict[str, Any]) -> None:
    value = json.loads(report_json(reports()[2]))
    assert check(value)
    assert not check({**value, **change})
    del value["stack"]
    assert not check(value)


def test_every_field_is_described_and_what_is_required_is_fixed() -> None:
    assert set(FIELDS) == {field.name for field in dataclasses.fields(Report)}
    schema = doctor_schema()
    assert schema["required"] == ["arch", "stack"]
    assert schema.get("additionalProperties") is not False
    assert schema["$defs"]["Status"]["enum"] == [status.value for status in Status]
    assert schema["$defs"]["Answer"]["enum"] == [answer.value for answer in Answer]


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "new")]) == 0
    assert json.loads((tmp_path / "new" / FILE).read_text()) == doctor_schema()
    assert main([]) == 4
    assert "usage" in capsys.readouterr().err
