"""Whether a run earned the level of evidence that its matrix requires, and which exit code it ends with.

The rule: each supported recipe of the selection, per provider and whatever its fields, passes at least one cell at the
required level or better (native > emulated > traced). What counts is a plain ``pass``; where the cell executed, one
whose FP8 arithmetic was judged. A rehearsed cell counts as traced: no kernel of that architecture ran. Therefore

* a negative cell counts neither way: a recipe with nothing but negative cells is not supported here;
* a documented refusal (DelayedScaling under compile) counts neither way, unless the cell also ran eagerly and that
  arithmetic was judged; a recipe that was refused in every cell is not asked for more;
* a pass whose arithmetic nobody judged doesn't count, and its recipe is asked for more;
* a quarantined cell counts when it passes; when it is red the run is judged as if it had been left out, so that a
  quarantine neither gates nor makes a run greener: a recipe of which only such cells are left is named
  (:func:`only_quarantined`), and a run in which nothing but quarantine stands against the level is red;
* an expected failure is no pass;
* a skipped cell counts neither way, but a recipe that was skipped in every cell has not been shown to be anything.

Apart from that, a run in which nothing was executed is red unless the matrix says ``require: traced``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness import exit_codes
from harness.report.baseline import BaselineReport
from harness.report.evidence import fp8_judged, nothing_executed, refused, unjudged
from harness.types import CellResult, Evidence, Verdict, implementation

LEVELS = (Evidence.TRACED, Evidence.EMULATED, Evidence.NATIVE)  # weakest first

INTERNAL_ERROR = exit_codes.INTERNAL
MEANINGS = {
    0: "all as expected",
    1: "not as expected",
    2: "interrupted",
    3: "internal error",
    4: "usage error or invalid matrix",
    5: "nothing ran",
}


def require_findings(require: str, results: Sequence[CellResult]) -> list[str]:
    """What is missing for ``require``, one message each; empty when it is met.

    Raises:
        ValueError: ``require`` is not native, emulated or traced.
    """
    required = _rank(require)
    kept = [cell for cell in results if not _is_quarantined_red(cell)]
    findings = []
    if require != Evidence.TRACED.value and nothing_executed(kept):
        outside = "" if nothing_executed(results) else " outside quarantine"
        findings.append(f"nothing was executed{outside}: no cell was seen to run FP8 arithmetic on this machine")
    for (provider, recipe), cells in _by_recipe(kept).items():
        asked = _asked(cells)
        best = _best(cells)
        if asked and best < required:
            findings.append(f"{recipe} on {provider}: {_shortfall(require, best, asked)}")
    if not findings and len(kept) < len(results) and _best(kept) < required:
        count = len(results) - len(kept)
        findings.append(f"no cell passed {_wanted(require)}; {count} in quarantine {'is' if count == 1 else 'are'} red")
    return findings


def only_quarantined(require: str, results: Sequence[CellResult]) -> list[str]:
    """Recipes that reached ``require`` in no cell and have red cells in quarantine; they don't gate, and must be seen.

    Raises:
        ValueError: as :func:`require_findings`.
    """
    required = _rank(require)
    lines = []
    for (provider, recipe), cells in _by_recipe(results).items():
        reds = Counter(cell.verdict.value for cell in cells if _is_quarantined_red(cell))
        kept = [cell for cell in cells if not _is_quarantined_red(cell)]
        if reds and not _asked(kept) and _best(kept) < required:
            counts = ", ".join(f"{count} {verdict}" for verdict, count in reds.items())
            lines.append(f"{recipe} on {provider}: not met: only quarantined cells ({counts})")
    return lines


def _rank(require: str) -> int:
    names = [level.value for level in LEVELS]
    if require not in names:
        raise ValueError(f"require must be one of {', '.join(reversed(names))}, not {require!r}")
    return names.index(require)


def _best(cells: Sequence[CellResult]) -> int:
    """The index in :data:`LEVELS` of the best pass that counts; -1 without one."""
    return max((LEVELS.index(as_required(cell.evidence)) for cell in cells if _counts(cell)), default=-1)


def as_required(evidence: Evidence) -> Evidence:
    """The level that evidence counts as: a rehearsal says no more of the architecture's kernels than tracing does."""
    return Evidence.TRACED if evidence is Evidence.REHEARSED else evidence


def _is_quarantined_red(cell: CellResult) -> bool:
    return cell.verdict.is_red and not cell.gates


def _by_recipe(results: Sequence[CellResult]) -> dict[tuple[str, str], list[CellResult]]:
    grouped: dict[tuple[str, str], list[CellResult]] = {}
    for result in results:
        recipe = str(result.axes.get("recipe", "")).partition("(")[0]
        grouped.setdefault((implementation(result.provider), recipe), []).append(result)
    return grouped


def _asked(cells: Sequence[CellResult]) -> Sequence[CellResult]:
    """The cells of one recipe that could have earned the level; all of them where every one was skipped."""
    if all(cell.verdict is Verdict.SKIP for cell in cells):
        return cells
    return [cell for cell in cells if cell.verdict is not Verdict.SKIP and not _is_exempt(cell)]


def _is_exempt(cell: CellResult) -> bool:
    return cell.evidence is Evidence.NEGATIVE or (refused(cell) and not fp8_judged(cell))


def _counts(cell: CellResult) -> bool:
    level = as_required(cell.evidence)
    if cell.verdict is not Verdict.PASS or level not in LEVELS:
        return False
    return fp8_judged(cell) or (level is Evidence.TRACED and not refused(cell))


def _shortfall(require: str, best: int, asked: Sequence[CellResult]) -> str:
    wanted = _wanted(require)
    if best >= 0:
        return f"passed no cell {wanted}, only {LEVELS[best].value}"
    seen = Counter("pass without judged numerics" if unjudged(cell) else cell.verdict.value for cell in asked)
    return f"passed no cell {wanted} ({', '.join(f'{count} {verdict}' for verdict, count in seen.items())})"


def _wanted(require: str) -> str:
    return require if require == Evidence.NATIVE.value else f"{require} or better"


def exit_code(
    results: Sequence[CellResult],
    require_findings: Sequence[str],
    *,
    interrupted: bool = False,
    internal: bool = False,
    baseline: BaselineReport | None = None,
) -> tuple[int, str]:
    """The exit code of a run (pytest's numbers) and its meaning in words.

    ``baseline``: what a baseline says of the run as a whole (``harness/report/baseline.py``); cells that are worse by
    their own census are red themselves.

    An internal error outranks an interruption, which outranks red cells: what wasn't finished can't be summed up.
    """
    if internal:
        return 3, MEANINGS[3]
    if interrupted:
        return 2, MEANINGS[2]
    if not results:
        return 5, MEANINGS[5]
    reds = sum(result.verdict.is_red and result.gates for result in results)
    reasons = [f"{reds} cell{'' if reds == 1 else 's'} not as expected"] if reds else []
    reasons += ["the required evidence was not reached"] if require_findings else []
    reasons += ["worse than the baseline"] if baseline is not None and baseline.findings else []
    return (1, "; ".join(reasons)) if reasons else (0, MEANINGS[0])
