"""The published JSON Schemas of results.jsonl, run.json and baselines, made from the dataclasses that are written.

``python -m harness.report.schema DIRECTORY`` writes them. Changes are additive only: a new field has a default, so it
isn't required, and unknown fields are allowed. Each field is described here once, for scripts and people alike.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from harness.baseline import Baseline
from harness.report.run_info import RunRecord
from harness.report.store import write_text_atomically
from harness.types import SCHEMA_VERSION, CellResult

DIALECT = "https://json-schema.org/draft/2020-12/schema"
COMMENT = f"schema_version {SCHEMA_VERSION}; a number that is not finite is the string nan, inf or -inf"

RESULT_FIELDS: Mapping[str, str] = {
    "id": "exact id of the cell: case, provider and every axis that differs from the schema's default",
    "axes": "every axis of the cell; recipe and provider as labels, shape as a list",
    "arch": "resolved architecture: never host",
    "provider": "label of the FP8 implementation under test, with the names of seeded faults",
    "case": "name of the program",
    "verdict": "what became of the cell, over all its attempts",
    "reason": "why, in one line; empty for a plain pass",
    "signature": "check | normalised reason | site: the same for reds of one cause; empty for pass and skip",
    "evidence": "how much the result rests on",
    "findings": "every reason why the cell is red, in the order of blame",
    "checks": "names of the checks that were applied: what is missing here was not looked at",
    "notes": "observations that are shown and not judged",
    "census": "what Dynamo and AOT did: frames, graphs, breaks, recompiles, FP8 calls captured and executed",
    "numerics": "what the numerics checks measured",
    "fp8": "support levels, GEMMs seen by the profiler with operand dtypes, recipes that FP8 ops were given",
    "state": "how many state keys were compared and which differed",
    "timing": "seconds by phase; total_s is the whole cell",
    "attempts": "every try of the cell, in order",
    "detail": "stack or other long text of a red",
    "repro": "shell command that runs this cell alone",
    "gates": "false under a quarantine: shown, never decides the exit code",
    "worker": "process of the last attempt: gw0, gw1...; main for pytest itself; empty when none started the cell",
    "gpu": "the only GPU that this process could see: index (position in the caller's CUDA_VISIBLE_DEVICES), name, "
    "uuid, alone (whether nobody else had leased it); empty without one",
    "schema_version": "version of this format",
}
RUN_FIELDS: Mapping[str, str] = {
    "run_id": "name of the run and of its report directory",
    "matrix": "matrix file as the user named it",
    "name": "the matrix's own name",
    "require": "evidence level that each supported recipe must reach: native, emulated or traced",
    "started": "ISO 8601 time with offset",
    "finished": "ISO 8601 time with offset",
    "seconds": "wall time",
    "command": "the command line, as words",
    "plan_digest": "identifies the selected ids in the plan's order",
    "planned": "cells of the full plan",
    "selected": "cells left after selection: a complete run has this many results",
    "workers": "worker processes; 0: cells ran in the pytest process itself",
    "versions": "versions of what took part, by distribution name",
    "host": "the machine: arch, cpu, gpus, driver, threads",
    "env": "environment variables that matter and were set",
    "git_commit": "commit of the checkout around the working directory, empty when there is none",
    "git_dirty": "whether tracked files had uncommitted changes",
    "exit_code": "0 as expected, 1 not, 2 interrupted, 3 internal error, 4 usage error, 5 nothing ran",
    "exit_reason": "the exit code in words",
    "rounds": "how often processes were started: 1 without retries",
    "notes": "whatever else the user should know",
    "baseline": "null without --baseline; else its file, what was worse (findings: the run is red), better, and notes",
    "audit": "the run derived once more from its files (docs/running.md): cells looked at, and findings, with any of "
    "which the exit code is 3; null where no audit was made",
    "totals": "counts by verdict and by evidence",
    "blame": "none, product, infra (every gating red is the machine's) or run (no red cell, yet the run is red; or the "
    "audit found something)",
    "schema_version": "version of this format",
}


BASELINE_FIELDS: Mapping[str, str] = {
    "matrix": "name of the matrix that was run",
    "environment": "where it was measured: resolved architecture, GPU, versions by distribution name",
    "cells": "one entry for each cell that was as expected, sorted by id",
    "schema_version": "version of this format",
}
BASELINE_CELL_FIELDS: Mapping[str, str] = {
    "id": "exact id of the cell",
    "arch": "resolved architecture: never host",
    "verdict": "what became of it; red cells have no entry",
    "evidence": "how much the result rested on; less is red",
    "fp8_judged": "whether the FP8 arithmetic was held against the oracle; false after true is red",
    "graphs": "forward graphs; more is red; null: nothing was counted",
    "graph_breaks": "break sites or Dynamo's own counter, whichever is more; more is red",
    "recompiles": "compilations of a frame that was compiled before; more is red",
    "eager_frames": "frames that Dynamo gave up on; more is red",
    "unimplemented": "constructs that Dynamo reported as unsupported; more is red",
    "steady_compiles": "compilations during ten more calls; more is red",
    "fp8_gemms": "FP8 GEMMs of one profiled step, native and emulated; fewer is red; null: nothing was profiled",
    "environment": "where this entry was measured, when that is an earlier environment than the file's",
}


def schemas() -> dict[str, dict[str, Any]]:
    """The schemas by file name."""
    return {
        "results.schema.json": published(TypeAdapter(CellResult), "One line of results.jsonl", RESULT_FIELDS),
        "run.schema.json": published(TypeAdapter(RunRecord), "run.json", RUN_FIELDS),
        "baseline.schema.json": _baseline_schema(),
    }


def _baseline_schema() -> dict[str, Any]:
    schema = published(TypeAdapter(Baseline), "A baseline", BASELINE_FIELDS)
    schema["required"] = ["schema_version", *schema["required"]]
    cell = schema["$defs"]["BaselineCell"]
    cell["properties"] = {n: {"description": BASELINE_CELL_FIELDS[n]} | v for n, v in cell["properties"].items()}
    return schema


def published(adapter: TypeAdapter[Any], title: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """A schema as it is published: ``fields`` describes every member of the dataclass behind ``adapter``."""
    schema: dict[str, Any] = _tidy(adapter.json_schema())
    properties = schema["properties"]
    schema["properties"] = {name: {"description": fields[name]} | value for name, value in properties.items()}
    return {"$schema": DIALECT, "title": title, "$comment": COMMENT} | schema


def _tidy(value: Any) -> Any:
    """The same schema without titles made from names, and without what differs between pydantic releases."""
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _tidy(item) for key, item in value.items() if (key, item) != ("additionalProperties", True)}
    if isinstance(kept.get("title"), str):
        del kept["title"]
    if len(kept.get("allOf", ())) == 1:
        kept = {**kept.pop("allOf")[0], **kept}
    return kept


def schema_text(schema: Mapping[str, Any]) -> str:
    """A schema as it stands in its file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def write_schemas(directory: Path) -> None:
    """Write all schemas into ``directory``, made if missing."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, schema in schemas().items():
        write_text_atomically(directory / name, (schema_text(schema),))


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m harness.report.schema DIRECTORY", file=sys.stderr)
        return 4
    write_schemas(Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
