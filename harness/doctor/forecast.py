"""What a matrix would come to on this machine: each cell's evidence, and whether ``require`` can be met.

The forecast is the best case: a cell passes unless it is known that it can't. Whether that is enough is decided by the
rule that judges a real run (``report.require``), on made-up results.
"""

from __future__ import annotations

import datetime
import functools
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.doctor.questions import Belief, Program, ProgramAnswer, ProviderFacts, program_of
from harness.doctor.types import MatrixReport, MatrixRow, Shortfall
from harness.judge.support_table import TABLE, Native, judge_support
from harness.judge.waivers import apply_waivers
from harness.plan import Plan
from harness.report.evidence import FP8_CHECKS, GPUS, REFUSAL_CHECK
from harness.report.require import LEVELS, as_required, require_findings
from harness.types import Cell, CellResult, Evidence, Verdict, axes_dict, implementation

EXECUTED = (Evidence.NATIVE, Evidence.EMULATED, Evidence.REHEARSED)


@dataclass(frozen=True)
class Asked:
    """What is known of one provider: its facts, or (None) why it could not be asked, and what mends that."""

    facts: ProviderFacts | None
    reason: str = ""
    fix: str = ""

    @functools.cached_property
    def answers(self) -> Mapping[Program, ProgramAnswer]:
        return {one.program: one for one in self.facts.answers} if self.facts else {}


@dataclass(frozen=True)
class Forecast:
    """One cell as it would end at best. ``why``: what keeps it from a better level, empty for native."""

    cell: Cell
    result: CellResult
    why: str = ""


@dataclass(frozen=True)
class _Setting:
    """Where the command to repeat is taken from: the matrix and the words that went with it."""

    matrix: str
    words: tuple[str, ...]


def forecast_cell(cell: Cell, asked: Asked, today: datetime.date) -> Forecast:
    """How ``cell`` would end here at best."""
    facts = asked.facts
    if facts is None or facts.error:
        why = asked.reason if facts is None else facts.error
        return _made(cell, "", Verdict.ERROR, Evidence.NONE, why)
    if facts.unavailable:
        return _made(cell, facts.arch, Verdict.SKIP, Evidence.NONE, facts.unavailable)
    answer = asked.answers[program_of(cell)]
    if answer.error:
        return _made(cell, answer.arch, Verdict.ERROR, Evidence.NONE, answer.error)
    if answer.skipped:
        return _made(cell, answer.arch, Verdict.SKIP, Evidence.NONE, answer.skipped)
    evidence = Evidence(answer.evidence)
    verdict, spoilt = _verdict(cell, answer, facts, today)
    return _made(cell, answer.arch, verdict, evidence, spoilt or _limit(answer, evidence, facts.arch))


def _verdict(cell: Cell, answer: ProgramAnswer, facts: ProviderFacts, today: datetime.date) -> tuple[Verdict, str]:
    """PASS, unless it is known that the cell can't pass; then with the reason."""
    disputes = [dispute(belief, answer.arch, facts.cuda) for belief in answer.beliefs]
    disputed = next(filter(None, disputes), "")
    waived = apply_waivers(Verdict.FAIL, cell.expect.waivers, answer.arch, facts.versions, today)
    if waived.verdict is Verdict.XFAIL:
        return Verdict.XFAIL, waived.notes[-1]
    if waived.findings:
        return Verdict.FAIL, str(waived.findings[0])
    return (Verdict.FAIL, disputed) if disputed else (Verdict.PASS, "")


def dispute(belief: Belief, arch: str, cuda: tuple[int, int] | None) -> str:
    """What the judge would say of a belief that differs from its own table; empty where it agrees."""
    if belief.level == "error" or not arch:
        return ""
    fp8_format = str(belief.recipe.as_dict().get("fp8_format", ""))
    findings = judge_support(
        belief.recipe.name, arch, cuda, belief.level, offered=belief.offered, fp8_format=fp8_format
    )
    return f"the judge's support table says {findings[0].expected}" if findings else ""


def _limit(answer: ProgramAnswer, evidence: Evidence, here: str) -> str:
    if evidence in (Evidence.TRACED, Evidence.REHEARSED):
        return f"{answer.arch} is not this machine's architecture ({here}): {evidence.value} only"
    wanted = {Evidence.EMULATED: "emulated", Evidence.NEGATIVE: "unsupported"}.get(evidence)
    limiting = [one for one in answer.beliefs if one.level == wanted and one.reason]
    if not limiting:
        return ""
    inner = "" if limiting[0].recipe == answer.program.axes.recipe else f"inner recipe {limiting[0].recipe.label}: "
    return inner + limiting[0].reason


def _made(cell: Cell, arch: str, verdict: Verdict, evidence: Evidence, why: str) -> Forecast:
    """A result such as the run would write, with the checks that the rule of ``require`` looks for."""
    checks: list[str] = []
    # A documented refusal under compile still runs eagerly, and that arithmetic is judged; one on entry runs nothing.
    entered = cell.expect.raises is None or cell.expect.raises.phase != "enter"
    if evidence in EXECUTED and entered:
        checks += sorted(FP8_CHECKS)
    if cell.expect.raises is not None and evidence is not Evidence.NEGATIVE:
        checks.append(REFUSAL_CHECK)
    result = CellResult(
        id=cell.id,
        axes=axes_dict(cell.axes),
        arch=arch,
        provider=cell.axes.provider.label,
        case=cell.axes.case,
        verdict=verdict,
        reason=why,
        signature="",
        evidence=evidence,
        checks=tuple(checks),
    )
    return Forecast(cell, result, why)


def forecast(
    plan: Plan,
    cells: Sequence[Cell],
    asked: Mapping[str, Asked],
    today: datetime.date,
    words: Sequence[str] = (),
) -> MatrixReport:
    """The matrix's report. ``asked`` by provider label; ``words``: options of the run, such as ``--set ...``."""
    setting = _Setting(plan.path, tuple(words))
    groups: dict[tuple[str, str], list[Forecast]] = {}
    for cell in cells:
        label = cell.axes.provider.label
        group = groups.setdefault((implementation(label), cell.axes.recipe.name), [])
        group.append(forecast_cell(cell, asked[label], today))
    rows, shortfalls = [], []
    for (provider, recipe), group in groups.items():
        met = _meets(plan.require, group)
        rows.append(_row(provider, recipe, group, met))
        if not met:
            shortfalls.append(_shortfall(plan.require, provider, recipe, group, asked[_label(group[0])], setting))
    results = [one.result for group in groups.values() for one in group]
    unmet = require_findings(plan.require, results)
    command = _what_can_be_met(plan.require, groups, rows, setting) if unmet else ""
    return MatrixReport(
        matrix=plan.path,
        name=plan.name,
        require=plan.require,
        cells=len(cells),
        met=not unmet,
        rows=tuple(rows),
        shortfalls=tuple(shortfalls),
        notes=(*([] if shortfalls else unmet), *_notes(groups)),
        command=command,
    )


def _label(one: Forecast) -> str:
    return one.cell.axes.provider.label


def _meets(require: str, group: Sequence[Forecast]) -> bool:
    """The run's rule for this recipe alone, whatever else is executed in the run."""
    elsewhere = CellResult(
        id="",
        axes={"recipe": ""},
        arch="",
        provider="",
        case="",
        verdict=Verdict.PASS,
        reason="",
        signature="",
        evidence=Evidence.NATIVE,
        checks=tuple(FP8_CHECKS),
    )
    return not require_findings(require, [elsewhere, *(one.result for one in group)])


def _row(provider: str, recipe: str, group: Sequence[Forecast], met: bool) -> MatrixRow:
    counts = Counter(one.result.evidence for one in group)
    skips = sum(one.result.verdict is Verdict.SKIP for one in group)
    return MatrixRow(
        provider=provider,
        recipe=recipe,
        cells=len(group),
        native=counts[Evidence.NATIVE],
        emulated=counts[Evidence.EMULATED],
        rehearsed=counts[Evidence.REHEARSED],
        traced=counts[Evidence.TRACED],
        negative=counts[Evidence.NEGATIVE],
        skip=skips,
        unknown=counts[Evidence.NONE] - skips,
        best=_best(group),
        met=met,
    )


def _best(group: Sequence[Forecast]) -> str:
    """The best level with which one of the cells can pass."""
    passing = {as_required(one.result.evidence) for one in group if one.result.verdict is Verdict.PASS}
    return next((level.value for level in reversed(LEVELS) if level in passing), Evidence.NONE.value)


def _shortfall(
    require: str, provider: str, recipe: str, group: Sequence[Forecast], asked: Asked, setting: _Setting
) -> Shortfall:
    best = _best(group)
    nearest = [one for one in group if one.result.verdict is Verdict.PASS and one.result.evidence.value == best]
    why = next((one.why for one in nearest or group if one.why), "")
    words, command = _next(recipe, group, asked, setting)
    return Shortfall(provider, recipe, require, best, why, words, command)


def _next(recipe: str, group: Sequence[Forecast], asked: Asked, setting: _Setting) -> tuple[str, str]:
    """What would help: the library's own fix, a look at what died, or a machine that has the kernels."""
    facts = asked.facts
    again = shlex.join(["python", "runner.py", "doctor", "--matrix", setting.matrix, *setting.words])
    fix = asked.fix if facts is None else facts.fix
    if fix:
        return "install or mend it", fix
    if facts is None or facts.error:
        provider = group[0].cell.axes.provider.label
        return "see what it printed", shlex.join(["python", "runner.py", "doctor", "--provider", provider])
    arches = [arch for arch in _native_arches(recipe) if arch != facts.arch]
    if facts.unavailable or any(one.result.verdict is Verdict.PASS for one in group):
        named = [f"{arch} ({GPUS[arch]})" for arch in arches]
        return f"ask on a machine with a native kernel: {', '.join(named)}", again
    why = "its cells are skipped here" if _all_skipped(group) else "none of its cells can pass here"
    plan = ["python", "runner.py", "--matrix", setting.matrix, *setting.words, "--select", f"recipe={recipe}", "--plan"]
    return f"{why}: see its cells, and leave them out", shlex.join(plan)


def _all_skipped(group: Sequence[Forecast]) -> bool:
    return all(one.result.verdict is Verdict.SKIP for one in group)


def _native_arches(recipe: str) -> list[str]:
    return [arch for arch, row in TABLE.get(recipe, {}).items() if row.native is Native.YES and arch in GPUS]


def _what_can_be_met(
    require: str,
    groups: Mapping[tuple[str, str], Sequence[Forecast]],
    rows: Sequence[MatrixRow],
    setting: _Setting,
) -> str:
    """The command for what falls short nowhere: recipes or providers, whichever leaves more cells; else empty."""
    choices: list[tuple[int, str]] = []
    for axis, position in (("recipe", 1), ("provider", 0)):
        bad = {(row.provider, row.recipe)[position] for row in rows if not row.met}
        # A bare name selects every provider of that name, whatever its settings.
        names = list(dict.fromkeys(key[position] for key in groups))
        good = [name for name in names if not any(one == name or one.startswith(f"{name}(") for one in bad)]
        results = [one.result for key, group in groups.items() if key[position] in good for one in group]
        if results and bad and not require_findings(require, results):
            choices.append((len(results), f"{axis}={','.join(good)}"))
    if not choices:
        return ""
    selection = max(choices)[1]
    return shlex.join(["python", "runner.py", "--matrix", setting.matrix, *setting.words, "--select", selection])


def _notes(groups: Mapping[tuple[str, str], Sequence[Forecast]]) -> list[str]:
    """Cells that will be red, or forgiven, whatever happens in them."""
    kinds = {Verdict.XFAIL: "expected to fail", Verdict.FAIL: "will be red", Verdict.ERROR: "could not be asked about"}
    found = Counter(
        (one.result.provider, one.result.verdict, one.why)
        for group in groups.values()
        for one in group
        if one.result.verdict in kinds
    )
    return [
        f"{count} cell{'' if count == 1 else 's'} of {provider} {kinds[verdict]}: {why}"
        for (provider, verdict, why), count in found.items()
    ]
