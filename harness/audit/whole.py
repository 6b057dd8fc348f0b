"""The run as a whole: its totals, the evidence it earned, its exit code, and its junit.xml."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Sequence

from harness.audit.cells import is_red
from harness.audit.record import Json, Recorded, Said

LEVELS = ("traced", "emulated", "native")  # weakest first
REHEARSED = "rehearsed"  # on another machine's kernels: worth as much as traced
_REHEARSE = re.compile(r"\(rehearse=\w+\)|,rehearse=\w+")  # a provider's setting that makes it no other provider
EXECUTED = ("native", "emulated")
# By these a result's FP8 arithmetic was held against the oracle; by that one, a pass is a documented refusal.
FP8_CHECKS = {"numerics.scales", "numerics.codes", "numerics.kernel"}
REFUSAL = "error.refusal"
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def audit_counts(recorded: Recorded) -> Iterator[Said]:
    """run.json is about this plan, and its totals are those of the results."""
    run, results = recorded.run, recorded.results
    totals = run.get("totals", {})
    verdicts = Counter(str(result["verdict"]) for result in results)
    counted = {
        "results": (totals.get("results"), len(results)),
        "gating_reds": (totals.get("gating_reds"), sum(is_red(one) and _gates(one) for one in results)),
        "quarantined_reds": (totals.get("quarantined_reds"), sum(is_red(one) and not _gates(one) for one in results)),
        "retried": (totals.get("retried"), sum(len(one.get("attempts", ())) > 1 for one in results)),
        "selected": (run.get("selected"), len(recorded.cells)),
        "run_id": (run.get("run_id"), recorded.plan.get("run_id")),
    }
    for verdict in sorted({*totals.get("by_verdict", {}), *verdicts}):
        counted[verdict] = (totals.get("by_verdict", {}).get(verdict, 0), verdicts[verdict])
    for name, (told, true) in counted.items():
        if told != true:
            yield "audit.counts", f"run.json says {name} {told}, it is {true}", ""


def audit_junit(recorded: Recorded) -> Iterator[Said]:
    """Every result has its test case, in the same order, and it is failed, skipped or passed as the result is."""
    try:
        cases = ElementTree.parse(recorded.directory / "junit.xml").findall("testsuite[1]/testcase")
    except (OSError, ElementTree.ParseError) as error:
        yield "audit.files", f"junit.xml can't be read: {error}", ""
        return
    if len(cases) != len(recorded.results):
        yield "audit.counts", f"junit.xml has {len(cases)} cells of {len(recorded.results)}", ""
    for case, result in zip(cases, recorded.results, strict=False):
        told = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        true = _outcomes(result)
        name = _NOT_XML.sub("", str(result["id"]))
        if told not in true or (case.get("name") != name and name == result["id"]):
            yield "audit.counts", f"junit.xml has {case.get('name')} as {told}, it is {result['verdict']}", result["id"]


def _outcomes(result: Json) -> tuple[str, ...]:
    if is_red(result):
        return ("failure", "error") if _gates(result) else ("skipped",)
    return ("passed",) if result["verdict"] == "pass" else ("skipped",)


def _gates(result: Json) -> bool:
    return result.get("gates", True) is not False


def audit_exit_code(recorded: Recorded) -> Iterator[Said]:
    """0 only for a run in which nothing is red and the required evidence was earned; 1 only where something is.

    2 (interrupted), 3 (internal error) and 5 (nothing ran) are no claim that all is well, and are left as they are.
    """
    run, results = recorded.run, recorded.results
    if run.get("exit_code") not in (0, 1):
        return
    require = str(recorded.plan.get("require"))
    if run.get("require") != require:
        yield "audit.require", f"run.json requires {run.get('require')}, the plan {require}", ""
    reds = [str(one["id"]) for one in results if is_red(one) and _gates(one)]
    worse = list((run.get("baseline") or {}).get("findings", ()))
    unearned = missing_evidence(require, results)
    if run["exit_code"] == 1 and not (reds or worse or unearned):
        yield "audit.exit_code", "1, and nothing is red", ""
    if run["exit_code"] == 0 and (reds or worse or not results):
        yield "audit.exit_code", f"0 in spite of {len(reds)} red cell(s), {len(worse)} finding(s) of the baseline", ""
    if run["exit_code"] == 0:
        for text in unearned:
            yield "audit.require", f"exit code 0, but {text}", ""


def missing_evidence(require: str, results: Sequence[Json]) -> list[str]:
    """What docs/evidence.md demands and no cell earned."""
    level = LEVELS.index(require)
    kept = [one for one in results if not is_red(one) or _gates(one)]
    missing = []
    if require != "traced" and not any(_executed(one) for one in kept):
        missing.append("nothing was executed")
    groups: dict[tuple[str, str], list[Json]] = {}
    for one in kept:
        key = str(one["axes"].get("recipe", "")).partition("(")[0], _REHEARSE.sub("", str(one["provider"]))
        groups.setdefault(key, []).append(one)
    for (recipe, provider), group in groups.items():
        skipped = all(one["verdict"] == "skip" for one in group)
        asked = skipped or any(one["verdict"] != "skip" and not _exempt(one) for one in group)
        if asked and _best(group) < level:
            missing.append(f"{recipe} on {provider} passed no cell at {require}")
    if not missing and len(kept) < len(results) and _best(kept) < level:
        missing.append(f"no cell outside quarantine passed at {require}")
    return missing


def _judged(one: Json) -> bool:
    return bool(FP8_CHECKS & set(one.get("checks", ())))


def _executed(one: Json) -> bool:
    return one["evidence"] in EXECUTED and (one["verdict"] != "pass" or _judged(one))


def _exempt(one: Json) -> bool:
    """A refused recipe, entered on the wrong architecture or under compile, is not asked for more."""
    refused = one["verdict"] == "pass" and REFUSAL in one.get("checks", ())
    return bool(one["evidence"] == "negative" or (refused and not _judged(one)))


def _best(group: Sequence[Json]) -> int:
    """The best level that a pass of the group earned; -1 without one."""
    earned = [
        LEVELS.index(_level(one))
        for one in group
        if one["verdict"] == "pass" and _level(one) in LEVELS and (_judged(one) or _earned_by_tracing(one))
    ]
    return max(earned, default=-1)


def _level(one: Json) -> str:
    return "traced" if one["evidence"] == REHEARSED else str(one["evidence"])


def _earned_by_tracing(one: Json) -> bool:
    return bool(_level(one) == "traced" and REFUSAL not in one.get("checks", ()))
