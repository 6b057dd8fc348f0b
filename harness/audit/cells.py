"""Cell by cell: is the result that is reported the one that was recorded, and may it be green?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.audit.record import Json, Recorded, Said, Try
from harness.audit.waivers import label, why_not_forgiven

GREEN = ("pass", "xfail", "skip")
RETRIED = ("infra", "oom")
# What reconciling adds to a recorded result; everything else must have come through unchanged.
ADDED = ("repro", "attempts", "worker", "gpu", "notes")


def audit_results(recorded: Recorded) -> Iterator[Said]:
    """Every finding about single cells, in the plan's order."""
    by_id: dict[str, Json] = {}
    for result in recorded.results:
        cell = str(result["id"])
        if cell in by_id:
            yield "audit.twice", "two lines of results.jsonl", cell
        elif cell not in recorded.cells:
            yield "audit.unplanned", "a result of a cell that is not in the plan", cell
        by_id.setdefault(cell, result)
    for cell in sorted(set(recorded.tries) - set(recorded.cells)):
        yield "audit.unplanned", "the journal tells of a cell that is not in the plan", cell
    for cell, planned in recorded.cells.items():
        if cell not in by_id:
            yield "audit.lost", "no result", cell
            continue
        tries = recorded.tries.get(cell, [])
        for check, text in (*_planned(planned, by_id[cell]), *_earned(recorded, by_id[cell], tries)):
            yield check, text, cell
        for text in (*_consistent(by_id[cell]), *_as_recorded(by_id[cell], tries)):
            yield "audit.verdict", text, cell
        for text in _forgiven(recorded, planned, by_id[cell], tries):
            yield "audit.waiver", text, cell


def is_red(result: Json) -> bool:
    """Anything but the three words for "as expected": an unknown verdict is red."""
    return result["verdict"] not in GREEN


def _planned(planned: Json, result: Json) -> Iterator[tuple[str, str]]:
    """The axes under an id are those that were planned under it."""
    for axis, value in planned["axes"].items():
        wanted = label(value) if axis in ("recipe", "provider") else value
        if axis not in result["axes"] or result["axes"][axis] != wanted:
            yield "audit.unplanned", f"{axis} is {result['axes'].get(axis)!r}, planned was {wanted!r}"


def _earned(recorded: Recorded, result: Json, tries: Sequence[Try]) -> Iterator[tuple[str, str]]:
    """A result that is not red has a start and an end in one process behind it, and no other try beside a permitted
    retry; and no result hides a try."""
    if len(result.get("attempts", ())) != len(tries):
        yield "audit.journal", f"{len(result.get('attempts', ()))} attempts reported, {len(tries)} recorded"
    if is_red(result) or (not tries and _left_out(recorded, result)):
        return
    verdict = result["verdict"]
    if not tries:
        yield "audit.journal", f"{verdict}, but no process started it"
    elif tries[-1].end is None:
        yield "audit.journal", f"{verdict}, but its process recorded no end"
    elif not tries[-1].started:
        yield "audit.journal", f"{verdict}, but its process recorded no start"
    if len(tries) > 1 and not _is_retry(tries):
        yield "audit.twice", f"{verdict}, but it was recorded {len(tries)} times: {', then '.join(map(_word, tries))}"


def _left_out(recorded: Recorded, result: Json) -> bool:
    """Skipped by -x/--maxfail: only where as many gating reds are there."""
    limit = int(recorded.plan.get("maxfail", 0))
    reds = sum(is_red(other) and bool(other.get("gates", True)) for other in recorded.results)
    return result["verdict"] == "skip" and 0 < limit <= reds


def _is_retry(tries: Sequence[Try]) -> bool:
    """One second attempt, after a first that a retry may follow. One without an end may have been taken from outside
    (its parent was killed, the disk was full), unless its process left word that it died of the cell."""
    first, second = tries[0], tries[1]
    if len(tries) != 2 or (first.attempt, second.attempt) != (1, 2):
        return False
    before, after = _verdict(first), _verdict(second)
    if before is None:
        return not first.died
    return before == "infra" or (before == "oom" and after not in GREEN)


def _verdict(one: Try) -> str | None:
    return None if one.end is None else str(one.end["verdict"])


def _word(one: Try) -> str:
    return _verdict(one) or one.died or "no end"


def _consistent(result: Json) -> Iterator[str]:
    """A verdict and the findings beside it say the same."""
    verdict, findings = result["verdict"], result.get("findings", ())
    if verdict in ("pass", "skip") and findings:
        yield f"{verdict}, with {len(findings)} finding(s): {findings[0].get('check')}"
    if verdict not in ("pass", "skip") and not findings:
        yield f"{verdict}, without a finding"
    if verdict == "pass" and (not result.get("checks") or result.get("evidence") == "none"):
        yield "pass, and nothing was checked"


def _as_recorded(result: Json, tries: Sequence[Try]) -> Iterator[str]:
    """Where a cell has one outcome, or ended well in the end, its result is the one that its process wrote down."""
    if not tries or tries[-1].end is None or not tries[-1].started:
        return
    if len(tries) > 1 and (is_red(result) or not _is_retry(tries)):
        return  # what several outcomes make is a red of their own
    end = tries[-1].end
    for name in end:
        if name not in ADDED and result.get(name) != end[name]:
            shown = f"{result.get(name)!r} is reported, {end[name]!r} was recorded"
            yield f"{name}: {shown if len(shown) < 200 else 'not what was recorded'}"


def _forgiven(recorded: Recorded, planned: Json, result: Json, tries: Sequence[Try]) -> Iterator[str]:
    """An expected failure, and a cell that does not gate, has a waiver of that kind that holds for this very cell."""
    at = tries[-1].began if tries else None  # judged no earlier than that
    quarantined = result.get("gates", True) is not True
    for kind, applies in (("xfail", result["verdict"] == "xfail"), ("quarantine", quarantined)):
        why = why_not_forgiven(kind, planned, result, recorded.host, at) if applies else ""
        if why:
            yield f"{'xfail' if kind == 'xfail' else 'does not gate'}, but {why}"
