"""The published JSON Schema of ``runner.py doctor --json`` (docs/schemas/doctor.schema.json)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from harness.doctor.types import Report
from harness.report.schema import published, schema_text
from harness.report.store import write_text_atomically
from harness.serialize import to_jsonable

FILE = "doctor.schema.json"
FIELDS: Mapping[str, str] = {
    "arch": "resolved architecture of this machine; empty where torch could not be asked",
    "stack": "versions and what is wrong with them, in the order they are shown",
    "gpus": "every GPU that torch sees, by its index",
    "visible_devices": "how CUDA_VISIBLE_DEVICES stands",
    "providers": "each provider that was asked, in a process of its own",
    "environment": "environment variables that change counts or results and are set",
    "versions": "versions of installed distributions, by name",
    "matrix": "what the matrix of --matrix would come to here; null without one",
    "exit_code": "0 can be run, 1 can't",
    "exit_reason": "the exit code in words",
    "schema_version": "version of this format",
}


def doctor_schema() -> dict[str, Any]:
    """The schema, made from the dataclasses that are written."""
    return published(TypeAdapter(Report), "runner.py doctor --json", FIELDS)


def report_json(report: Report) -> str:
    """The one object that ``--json`` prints, without its newline."""
    return json.dumps(to_jsonable(report), indent=2, ensure_ascii=True, allow_nan=False)


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m harness.doctor.schema DIRECTORY", file=sys.stderr)
        return 4
    directory = Path(arguments[0])
    directory.mkdir(parents=True, exist_ok=True)
    write_text_atomically(directory / FILE, (schema_text(doctor_schema()),))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
