"""Cells and results made by hand, for tests that need no matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.run.journal import Journal, JournalWriter, Record
from harness.run.plan_file import RunPlan, rewrite_plan
from harness.run.reconcile import Reconciled
from harness.run.run_dir import RunDir
from harness.types import Attempt, Axes, Cell, CellResult, Evidence, Expectation, Finding, Spec, Verdict, axes_dict


def cell(seed: int = 0, *, expect: Expectation = Expectation(), **axes: Any) -> Cell:  # noqa: B008  # frozen
    provider = axes.pop("provider", Spec("reference"))
    values = Axes("toy_linear", provider, Spec("float8_current_scaling"), seed=seed, **axes)
    return Cell(f"toy_linear[seed={seed}]", values, None, expect)


def result(of: Cell, verdict: Verdict = Verdict.PASS, **changes: Any) -> CellResult:
    finding = Finding("fake.check", "what was asked", verdict.value)
    values = {
        "id": of.id,
        "axes": axes_dict(of.axes),
        "arch": "cpu",
        "provider": of.axes.provider.label,
        "case": of.axes.case,
        "verdict": verdict,
        "reason": str(finding) if verdict.is_red else "",
        "signature": "fake" if verdict.is_red else "",
        "evidence": Evidence.EMULATED,
        "findings": (finding,) if verdict.is_red else (),
        "checks": ("numerics.codes",),
    }
    return CellResult(**{**values, **changes})


def plan(count: int, *, matrix: Path | str = "m.yaml", **changes: Any) -> RunPlan:
    cells = tuple(cell(seed) for seed in range(count))
    values = {
        "run_id": "20260131-101500-4f2a",
        "matrix": str(matrix),
        "name": "m",
        "require": "emulated",
        "cells": cells,
        "planned": count,
        "timeout": 2.0,
    }
    return RunPlan(**{**values, **changes})


def recorded(run: RunDir, made: RunPlan, results: Sequence[CellResult], worker: str = "gw0") -> Reconciled:
    """A run in which each cell was started and ended once, on the disk as its processes leave it."""
    rewrite_plan(run.plan, made)
    writer = JournalWriter(run.journal, worker, 1)
    for one in results:
        writer.write("start", id=one.id, attempt=1)
        writer.write("end", result=one, attempt=1)
    writer.close()
    return Reconciled(tuple(replace(one, attempts=(Attempt(one.verdict, one.reason),)) for one in results))


class Book:
    """Builds a journal line by line; time goes on by one second a line."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def add(self, kind: str, worker: str = "gw0", pid: int = 10, round_number: int = 1, **data: Any) -> Book:
        moment = float(len(self.records))
        source = f"{round_number}-{worker}-{pid}.jsonl:{len(self.records) + 1}"
        self.records.append(Record(kind, worker, pid, round_number, moment, data, source))
        return self

    def start(self, of: Cell | str, attempt: int = 1, **place: Any) -> Book:
        return self.add("start", id=of if isinstance(of, str) else of.id, attempt=attempt, **place)

    def end(self, of: CellResult, attempt: int = 1, **place: Any) -> Book:
        return self.add("end", result=of, attempt=attempt, **place)

    def ran(self, of: Cell, verdict: Verdict = Verdict.PASS, attempt: int = 1, **place: Any) -> Book:
        return self.start(of, attempt, **place).end(result(of, verdict), attempt, **place)

    @property
    def journal(self) -> Journal:
        return Journal(tuple(self.records))
