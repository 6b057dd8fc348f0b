"""Cells with a known outcome, run by the real front in its own process: what a selftest of the front is about is what
becomes of results, not how a cell comes by one. No torch, and nothing of the library under test.

===========================  ==========================================================================
a cell with                  ends as
===========================  ==========================================================================
``dtype: float16``           fail, with one finding; then as its waivers will have it
``data: positive``           skip
``data: heavy_tailed``       pass, and nobody judged its FP8 arithmetic
anything else                pass, native and judged
===========================  ==========================================================================
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from typing import Any

from harness.judge import waivers
from harness.run.cell_process import IN_PROCESS, CellProcess
from harness.run.journal import JournalTail
from harness.run.plan_file import Round, RunPlan, write_round
from harness.run.rounds import Interrupts, RoundEnd, Watch
from harness.run.run_dir import RunDir
from harness.signature import signature_of
from harness.types import Cell, CellResult, Evidence, Finding, Verdict, axes_dict

ARCH = "cpu"
JUDGED = ("compile.graphs", "numerics.finite", "numerics.scales", "numerics.codes", "numerics.kernel")
UNJUDGED = ("compile.graphs", "numerics.finite")
VERSIONS: Mapping[str, str] = {"torch": "2.13.0"}


def execute(cell: Cell, *, timeout: float | None) -> CellResult:
    """The result that is written for ``cell``, its waivers applied as the judge applies them."""
    skipped = cell.axes.data == "positive"
    passed = CellResult(
        id=cell.id,
        axes=axes_dict(cell.axes),
        arch=ARCH,
        provider=cell.axes.provider.label,
        case=cell.axes.case,
        verdict=Verdict.SKIP if skipped else Verdict.PASS,
        reason="skipped by the script" if skipped else "",
        signature="",
        evidence=Evidence.NONE if skipped else Evidence.NATIVE,
        checks=UNJUDGED if cell.axes.data == "heavy_tailed" else () if skipped else JUDGED,
        timing={"total_s": 0.0},
    )
    return _failed(cell, passed) if cell.axes.dtype == "float16" else passed


def _failed(cell: Cell, passed: CellResult) -> CellResult:
    finding = Finding("numerics.program", "the oracle's gradient", "another one", "input gradient")
    today = datetime.date.today()
    waived = waivers.apply_waivers(Verdict.FAIL, cell.expect.waivers, ARCH, VERSIONS, today, {finding.check})
    findings = (*waived.findings, finding)
    return dataclasses.replace(
        passed,
        verdict=waived.verdict,
        reason=str(findings[0]),
        signature=signature_of(waived.verdict, findings, str(findings[0])),
        findings=findings,
        notes=waived.notes,
        gates=waived.gates,
    )


def run_round(
    run: RunDir,
    plan: RunPlan,
    entry: Round,
    *,
    watch: Watch,
    execute: Callable[..., CellResult] = execute,
    interrupts: Interrupts | None = None,
    **_: Any,
) -> RoundEnd:
    """In the place of ``harness.run.rounds.run_round``: the round's cells one by one, journalled as a worker does."""
    write_round(run.round_file(entry.number), entry)
    tail = JournalTail(run.journal)
    tail.poll()
    cells = plan.by_id
    process = CellProcess(run, plan, entry, IN_PROCESS, execute=execute)
    try:
        process.prepare(lambda: {"arch": ARCH, "versions": VERSIONS}, lambda: None)
        for cell_id in entry.ids:
            process.run(cells[cell_id])
    finally:
        process.close()
    for record in tail.poll():
        watch(record)
    return RoundEnd(entry, 0, 0)
