"""One cell from start to result, in the process that runs it: resolve, build, observe, judge."""

from __future__ import annotations

import dataclasses
import datetime
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from cases import CASES
from harness.faults import FAULTS, stages
from harness.faults.fault import WANTED, FaultError
from harness.judge.check import EVERY, Enabled, Judging
from harness.judge.outcome import poisons_worker, verdict_of_error
from harness.judge.verdict import Judged, judge_cell
from harness.judge.waivers import apply_waivers
from harness.observe.census import compile_switches
from harness.observe.errors import describe_error
from harness.observe.session import observe_cell
from harness.observe.sites import own_code
from harness.observe.torch_settings import as_found, read_settings
from harness.observe.types import ErrorSeen, Observations
from harness.program import Case, CaseContext, Program
from harness.providers.load import loaded_provider, split_faults
from harness.providers.protocol import LoadedProvider, ProgramProvider, ProviderUnavailable
from harness.registry import LoadError, load
from harness.run.device import free_cached, lost_context
from harness.run.host import cuda_version, device_for, resolve_arch, versions
from harness.run.resolve import resolve
from harness.serialize import to_jsonable
from harness.signature import signature_of
from harness.targets import code_of
from harness.types import NOT_KEPT, RETIRE_WORKER, Cell, CellResult, Evidence, Finding, Verdict, axes_dict

# Findings that a group of reds shares are told once; a result keeps this many, and of each check the first.
MAX_FINDINGS = 20
HARNESS_ERROR = "harness.error"


def execute_cell(cell: Cell, *, timeout: float | None = None) -> CellResult:
    """Run and judge one cell. Failures of the product become verdicts; a bug of the harness becomes ``error``.

    Args:
        timeout: seconds the watchdog allows, recorded only.

    Raises:
        LoadError: the case's or provider's module can't be imported (a usage error of the whole run).
    """
    started = time.perf_counter()
    with own_code(code_of(cell.axes.target)):
        result = _left_behind(_alone(_ended(cell), cell))
    timing = {**result.timing, "total_s": round(time.perf_counter() - started, 4)}
    if timeout is not None:
        timing["timeout_s"] = timeout
    return dataclasses.replace(result, timing=timing)


def _ended(cell: Cell) -> CellResult:
    arch = resolve_arch(cell.axes.arch)  # a lost CUDA context can't be asked any more
    try:
        return _execute(cell)
    except LoadError:
        raise
    except ProviderUnavailable as error:
        return _skipped(cell, arch, error.reason)
    except FaultError as error:
        return _no_fault(cell, arch, error)
    except Exception as error:  # whatever it is, this cell must have a result
        return _escaped(cell, arch, error)


def _execute(cell: Cell) -> CellResult:
    with observed(cell) as judging:
        result = _result(cell, judging.obs, judge(judging))
        stages.reached(stages.JUDGED)
    return result


@contextmanager
def observed(cell: Cell) -> Iterator[Judging]:
    """Observe a cell; its provider's faults stay applied until what was observed has been judged, as in a run.

    Raises:
        LoadError: the case's or provider's module can't be imported.
        ProviderUnavailable: nothing of this cell can run here.
        FaultError: a fault of the provider's name raised, or left something replaced.
        RuntimeError: compilation is switched off in this process.
    """
    case: Case = load(CASES[cell.axes.case].path)
    switches = compile_switches()
    if switches:
        raise RuntimeError("compilation is switched off, nothing could be judged: " + "; ".join(switches))
    with loaded_provider(cell.axes.provider) as loaded:
        found = read_settings()
        judging = Judging(cell, _observe(cell, case, loaded))
        loaded.unedited()
        with as_found(found):  # a mode or hook that the product left must not reach the oracle
            yield judging


def judge(judging: Judging, enabled: Enabled = EVERY) -> Judged:
    """The judge's word today, on this machine, by the enabled checks; as often as wanted on one observation."""
    return judge_cell(judging, cuda=cuda_version(), versions=versions(), today=datetime.date.today(), enabled=enabled)


def _observe(cell: Cell, case: Case, loaded: LoadedProvider) -> Observations:
    arch = resolve_arch(cell.axes.arch)
    resolved = resolve(cell, loaded.provider, arch)
    absent = [belief.reason for belief in resolved.support.values() if not belief.offered]
    if absent:
        raise ProviderUnavailable(absent[0])
    reason = case.unavailable(loaded.provider, cell.axes, arch)
    if reason:
        raise ProviderUnavailable(reason)
    device = device_for(arch)
    told = case.asks(loaded.provider, cell.axes, arch)

    def build(provider: ProgramProvider) -> Program:
        # The oracle multiplies in float64 on the CPU, whatever the provider runs on.
        own = provider is loaded.provider
        context = CaseContext(
            provider=provider,
            axes=cell.axes,
            inner=cell.inner,
            device=device if own else torch.device("cpu"),
            dtype=getattr(torch, cell.axes.dtype) if own else torch.float64,
            told=told,
            library=loaded.provider.snapshot,
            origin=cell.origin.get("target", ""),
        )
        return case.build(context)

    obs = observe_cell(build, loaded.provider, cell.axes, resolved.evidence, arch, cell.expect, device)
    support = {label: (s.level, s.reason, s.error) for label, s in resolved.support.items()}
    return dataclasses.replace(obs, support=support, told=told)


def _result(cell: Cell, obs: Observations, judged: Judged) -> CellResult:
    findings = kept(judged.findings)
    return CellResult(
        id=cell.id,
        axes=axes_dict(cell.axes),
        arch=obs.arch,
        provider=cell.axes.provider.label,
        case=cell.axes.case,
        verdict=judged.verdict,
        reason=judged.reason,
        signature=signature_of(judged.verdict, judged.findings, judged.reason),
        evidence=obs.evidence,
        findings=findings,
        checks=judged.checks,
        notes=(*judged.notes, *_left_out(judged.findings, findings)),
        census=_census(obs),
        numerics=judged.numerics,
        fp8=_fp8(obs),
        state={"keys": obs.state_keys, "diffs": to_jsonable(obs.state_diffs)},
        timing=dict(obs.timing),
        detail="\n\n".join(error.stack for error in obs.errors if error.stack) if judged.verdict.is_red else "",
        gates=judged.gates,
    )


def kept(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings that a result holds, in their order: no check that found something is left out of it."""
    firsts = {finding.check: index for index, finding in reversed(list(enumerate(findings)))}
    held = {*range(min(len(findings), MAX_FINDINGS)), *firsts.values()}
    return tuple(findings[index] for index in sorted(held))


def _left_out(findings: Sequence[Finding], held: Sequence[Finding]) -> Iterator[str]:
    counts = Counter(finding.check for finding in findings)
    counts.subtract(finding.check for finding in held)
    if more := ", ".join(f"{check} {count}" for check, count in counts.items() if count):
        yield NOT_KEPT + more


def _census(obs: Observations) -> Mapping[str, Any]:
    if obs.census is None:
        return {}
    data: dict[str, Any] = to_jsonable(obs.census)
    data["eager_frames"] = obs.census.eager_frames
    return data


def _fp8(obs: Observations) -> Mapping[str, Any]:
    gemms = Counter((g.kernel, g.a_dtype, g.b_dtype, g.kind) for g in obs.gemms or ())
    return {
        "support": {label: level for label, (level, _, _) in obs.support.items()},
        "gemms": [
            {"kernel": kernel, "a_dtype": a, "b_dtype": b, "kind": kind, "count": count}
            for (kernel, a, b, kind), count in sorted(gemms.items())
        ],
        "recipes": {
            name: [record.recipe for record in run.records if record.product == "fprop"]
            for name, run in (("eager", obs.eager), ("compiled", obs.compiled))
            if run is not None
        },
    }


def _skipped(cell: Cell, arch: str, reason: str) -> CellResult:
    """The library isn't usable here, or hasn't got this cell's recipe: nothing to run and nobody's fault."""
    return _unobserved(cell, arch, Verdict.SKIP, reason)


def _escaped(cell: Cell, arch: str, error: Exception) -> CellResult:
    """An exception that no observer caught: a defect of the harness or of a case file, shown with its stack.

    Unless memory or the GPU is gone: then whatever looks at the GPU next fails, the harness too, and it is the cell's.
    """
    seen = describe_error(error, "run")
    poisoned, special = poisons_worker(seen), verdict_of_error(seen)
    if not poisoned and special is None:
        finding = Finding(HARNESS_ERROR, "no exception in the harness", f"{type(error).__name__}: {error}")
        return _with_stack(_unobserved(cell, arch, Verdict.ERROR, str(finding), (finding,)), error)
    finding = _device_finding(special, seen.chain[-1][1] or seen.type, seen.site)
    failed = {finding.check}
    waived = apply_waivers(
        special or Verdict.FAIL, cell.expect.waivers, arch, versions(), datetime.date.today(), failed
    )
    result = _unobserved(cell, arch, waived.verdict, str(finding), (*waived.findings, finding))
    notes = (*waived.notes, *((RETIRE_WORKER,) if poisoned else ()))
    return _with_stack(dataclasses.replace(result, notes=notes, gates=waived.gates), error)


def _no_fault(cell: Cell, arch: str, error: FaultError) -> CellResult:
    """The seeded fault raised, or left something replaced: no word about the product, and this process is spoiled."""
    finding = Finding(error.check, WANTED, str(error), site=error.site)
    result = _with_stack(_unobserved(cell, arch, Verdict.ERROR, str(finding), (finding,)), error)
    return dataclasses.replace(result, notes=(RETIRE_WORKER,))


def _alone(result: CellResult, cell: Cell) -> CellResult:
    """A fault of the user's own is tested by nobody: whatever it left in this process ends with it."""
    _, faults = split_faults(cell.axes.provider.name)
    if all(name in FAULTS for name in faults):
        return result
    return dataclasses.replace(result, notes=tuple(dict.fromkeys((*result.notes, RETIRE_WORKER))))


def _device_finding(verdict: Verdict | None, got: str, site: str = "") -> Finding:
    check = f"run.{verdict.value}" if verdict is not None else "run.device"
    return Finding(check, "memory and a GPU that work after the cell", got, site=site)


def _with_stack(result: CellResult, error: Exception) -> CellResult:
    return dataclasses.replace(result, detail="".join(traceback.format_exception(error)))


def _left_behind(result: CellResult) -> CellResult:
    """``result`` with what the cell did to this process: the next cell must neither meet it nor be blamed."""
    if compile_switches() and not any(finding.check == HARNESS_ERROR for finding in result.findings):
        # The cell switched compilation off (it was on at the start) and is red for it; no later one can be judged here.
        result = dataclasses.replace(result, notes=tuple(dict.fromkeys((*result.notes, RETIRE_WORKER))))
    lost = lost_context()
    if not lost:
        if result.verdict is Verdict.OOM:
            free_cached()
        return result
    notes = tuple(dict.fromkeys((*result.notes, RETIRE_WORKER)))
    if result.verdict.is_red or result.verdict is Verdict.XFAIL:
        return dataclasses.replace(result, notes=notes)
    seen = ErrorSeen("run", "RuntimeError", lost, ())
    special = verdict_of_error(seen)
    verdict, finding = special or Verdict.FAIL, _device_finding(special, lost)
    return dataclasses.replace(
        result,
        verdict=verdict,
        reason=str(finding),
        signature=signature_of(verdict, (finding,), str(finding)),
        findings=(finding, *result.findings),
        notes=notes,
    )


def _unobserved(cell: Cell, arch: str, verdict: Verdict, reason: str, findings: tuple[Finding, ...] = ()) -> CellResult:
    return CellResult(
        id=cell.id,
        axes=axes_dict(cell.axes),
        arch=arch,
        provider=cell.axes.provider.label,
        case=cell.axes.case,
        verdict=verdict,
        reason=reason,
        signature=signature_of(verdict, findings, reason),
        evidence=Evidence.NONE,
        findings=findings,
    )
