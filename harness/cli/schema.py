"""``runner.py schema``: the JSON Schemas of what users write and what scripts read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.cli.errors import UsageError
from harness.cli.option import Option, parse
from harness.doctor.schema import doctor_schema
from harness.plan import matrix_json_schema
from harness.plan.nearest import nearest
from harness.report.schema import schemas

SCHEMAS: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "matrix": matrix_json_schema,
    "results": lambda: schemas()["results.schema.json"],
    "run": lambda: schemas()["run.schema.json"],
    "baseline": lambda: schemas()["baseline.schema.json"],
    "doctor": doctor_schema,
}
OPTIONS = (
    Option(
        "name",
        ("name",),
        "matrix (a matrix file), results (a line of results.jsonl), run (run.json), baseline, doctor (doctor --json)",
        metavar="NAME",
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Print one schema to stdout.

    Raises:
        UsageError: no such schema.
    """
    settings = parse(OPTIONS, arguments, os.environ, prog="runner.py schema", description=__doc__)
    name = settings["name"] or "matrix"
    if name not in SCHEMAS:
        near = nearest(name, SCHEMAS)
        hint = f" (did you mean {near}?)" if near else f"; there are {', '.join(SCHEMAS)}"
        raise UsageError(f"no schema {name!r}{hint}")
    print(json.dumps(SCHEMAS[name](), indent=2, ensure_ascii=False))
    return 0
