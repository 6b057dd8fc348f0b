"""Baselines, results and matrices made by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from harness.baseline import Baseline, BaselineCell, BaselineUse, Environment
from harness.plan import Plan
from harness.plan.baseline import baseline_from_text, baseline_text, baseline_use
from harness.plan.load import matrix_from_bytes
from harness.types import Attempt, CellResult, Evidence, Verdict
from tests.support.cells import cell, result

HERE = Environment("cpu", "", {"torch": "2.13.0+cpu", "cuda": "none"})
CENSUS = {
    "graphs": 1,
    "breaks": [],
    "counter_breaks": 0,
    "unimplemented": [],
    "recompiles": [],
    "eager_frames": 0,
    "steady_compiles": 0,
}
GEMMS = [{"kernel": "mm", "kind": "fp8_native", "count": 4}, {"kernel": "mm", "kind": "fp8_emulated", "count": 2}]
CHECKS = ("compile.graphs", "fp8.gemms", "numerics.codes")


def ran(
    seed: int = 0, verdict: Verdict = Verdict.PASS, *, census: Any = None, gemms: Any = None, **changes: Any
) -> Any:
    """A result of a cell that was run; ``census`` replaces some of a clean cell's counts."""
    values: dict[str, Any] = {
        "evidence": Evidence.NATIVE,
        "checks": CHECKS,
        "census": {} if census == {} else {**CENSUS, **(census or {})},
        "fp8": {"gemms": GEMMS if gemms is None else gemms},
        "attempts": (Attempt(verdict, ""),),
    }
    made: CellResult = result(cell(seed), verdict, **{**values, **changes})
    return made


def entry(seed: int = 0, **changes: Any) -> BaselineCell:
    """What is measured of ``ran(seed)``."""
    clean = BaselineCell(f"toy_linear[seed={seed}]", "cpu", "pass", "native", True, 1, 0, 0, 0, 0, 0, 6)
    return dataclasses.replace(clean, **changes)


def use(*cells: BaselineCell, here: Environment = HERE, gone: tuple[str, ...] = (), why: str = "") -> BaselineUse:
    baseline = Baseline("m", HERE, cells)
    lines = {one.id: number for number, one in enumerate(cells, start=6)}
    return BaselineUse("b.json", baseline, here, lines, gone, why)


PLAN_TEXT = """
schema_version: 1
name: m
defaults: {case: toy_linear, provider: reference, recipe: float8_current_scaling}
matrix: {seed: [0, 1]}
budgets: {recompiles: 5, graph_breaks: null}
"""


def small_plan() -> Plan:
    return matrix_from_bytes(PLAN_TEXT.encode(), Path("m.yaml")).full


def planned_use(plan: Plan, *changes: dict[str, Any], why: str = "") -> BaselineUse:
    """A baseline with one entry for each cell of ``plan`` that there is a mapping of changes for."""
    cells = [entry(id=one.id, **change) for one, change in zip(plan.cells, changes, strict=False)]
    found = baseline_from_text(baseline_text(Baseline("m", HERE, tuple(cells))), "b.json")
    return baseline_use(found, "b.json", plan, HERE, why)
