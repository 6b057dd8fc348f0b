"""Was anything left behind? And do errors come where, and as, they are documented?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.judge.check import Check, Judging, one
from harness.observe.errors import is_documented
from harness.observe.types import ErrorSeen
from harness.types import Evidence, Finding, Raises

REFUSAL_PHASES = ("compile", "run")


def unchanged(j: Judging) -> Sequence[Finding]:
    """Every snapshot equals the first: the provider's state and torch's own, after success, exception and refusal."""
    findings: list[Finding] = []
    for diff in j.obs.state_diffs:
        findings += one("state.unchanged", f"{diff.key} = {diff.before}", diff.after, diff.moment)
    return findings[:5]


def snapshot_taken(j: Judging) -> Sequence[Finding]:
    """A snapshot of nothing equals every other one, and so does one that can't tell a region from none: a provider must
    show at least one key, and one that differs inside a region."""
    if j.obs.state_keys == 0:
        return one("state.observed", "a snapshot with keys", "an empty snapshot")
    if j.obs.state_moves == 0:
        return one("state.observed", "another state inside a region than outside", "no key that differs")
    return ()


def matches(error: ErrorSeen, raises: Raises) -> bool:
    """True when some exception of the chain has the documented class (or derives from it) and some message the text."""
    return is_documented(error, raises.type, raises.match)


def unexpected(j: Judging) -> Sequence[Finding]:
    """No exception but a documented refusal."""
    findings: list[Finding] = []
    negative_cell = j.obs.evidence is Evidence.NEGATIVE
    for error in j.obs.errors:
        if negative_cell and error.phase == "enter":
            continue  # judged by error.negative
        if not negative_cell and j.raises is not None and error.phase in (*REFUSAL_PHASES, j.raises.phase):
            continue  # judged by error.refusal
        text = next((message for _, message in reversed(error.chain) if message), error.message)
        got = f"{error.type}: {_head(text)}"
        if j.axes.target and any(finding.got == got for finding in findings):
            continue  # a mistake in a user's own program is met again in every run of it
        findings += one("error.unexpected", "no exception", got, error.phase, error.site)
    return findings[:3]


def refusal(j: Judging) -> Sequence[Finding]:
    """A documented refusal reaches the user as documented and on each call, never by silence."""
    raises = j.raises
    if raises is None:
        return ()
    phases = REFUSAL_PHASES if raises.phase == "compile" else (raises.phase,)
    seen = [error for error in j.obs.errors if error.phase in phases]
    wanted = f"{raises.type} matching {raises.match!r} on each of {max(j.obs.compile_attempts, 1)} calls"
    if j.obs.compile_attempts == 0 and raises.phase == "compile":
        return one("error.refusal", wanted, "no compiled call was made")
    if len(seen) < max(j.obs.compile_attempts, 1):
        return one("error.refusal", wanted, f"{len(seen)} raised, the others ran as if supported")
    for error in seen:
        if not matches(error, raises):
            return one("error.refusal", wanted, f"{error.type}: {_head(error.message)}", site=error.site)
    return ()


def negative(j: Judging) -> Sequence[Finding]:
    """An unsupported recipe raises its documented error on entry; state and the next region are as before."""
    entered = [error for error in j.obs.errors if error.phase == "enter"]
    name, (_, reason, wanted) = _unsupported(j)
    if not entered:
        return one("error.negative", f"{wanted} on entering {name} ({reason})", "no exception")
    for error in entered:
        if not any(wanted in names.split("<") for names, _ in error.chain):
            return one("error.negative", f"{wanted} on entering {name}", f"{error.type}: {_head(error.message)}")
    return ()


def _unsupported(j: Judging) -> tuple[str, tuple[str, str, str]]:
    for label, belief in j.obs.support.items():
        if belief[0] == "unsupported":
            return label, belief
    return "the recipe", ("unsupported", "", "RuntimeError")


def complete(j: Judging) -> Sequence[Finding]:
    """Every part that this cell owes was observed: a hole in the observations must never read as agreement."""
    obs = j.obs
    # Eager runs that are known to be wrong may have ended with an exception: numerics.eager_wrong judges which.
    owed: dict[str, bool] = {
        "eager run": obs.eager is not None or bool(obs.eager_errors),
        "second eager run": obs.eager_again is not None or bool(obs.eager_errors),
    }
    if j.raises is not None and j.raises.phase == "enter":
        return ()  # nothing can run where no region opens; error.refusal asks for the exception
    if j.raises is None:
        owed |= {
            "compiled run": obs.compiled is not None,
            "census": obs.census is not None,
            "profiled step": obs.gemms is not None,
            "later calls beside eager ones": len(obs.later) >= MINIMUM_CALLS,
            # Dynamo counts frames without fullgraph only; a count of none means that the counters were not seen.
            "counted frames": j.axes.fullgraph or (obs.census is not None and obs.census.frames_total > 0),
            "steady calls": obs.census is not None and len(obs.census.calls) >= MINIMUM_CALLS,
            "memory that the steady calls leave": obs.kept is not None and obs.kept.calls >= MINIMUM_CALLS - 1,
        }
    missing = [name for name, there in owed.items() if not there]
    return one("observe.complete", "every part observed", "missing: " + ", ".join(missing)) if missing else ()


# First call, ten steady ones (more than the default recompile limit of 8).
MINIMUM_CALLS = 11


def timing(j: Judging) -> Sequence[Finding]:
    """Every duration is a number, and none is less than nothing: what else a clock is wrong about nobody can see."""
    wrong = [f"{name} {value}" for name, value in j.obs.timing.items() if not 0 <= value < math.inf]
    return one("observe.timing", "durations of 0 or more", ", ".join(wrong)) if wrong else ()


def _head(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:300] if lines else ""


CHECKS = (
    Check(
        "error.unexpected",
        "an exception where none is documented",
        lambda j: True,
        unexpected,
    ),
    Check(
        "error.refusal",
        "a documented refusal that does not reach the user",
        # A negative cell refuses on entry, before the refusal that is documented for machines that have the recipe.
        lambda j: j.raises is not None and j.obs.evidence is not Evidence.NEGATIVE,
        refusal,
    ),
    Check(
        "error.negative",
        "an unsupported recipe that is accepted",
        lambda j: j.obs.evidence is Evidence.NEGATIVE,
        negative,
    ),
    Check("state.unchanged", "state that outlives its region", lambda j: True, unchanged),
    Check("state.observed", "a provider that shows no state", lambda j: True, snapshot_taken),
    Check(
        "observe.complete",
        "observations that are missing",
        lambda j: j.executed and (not j.obs.errors or j.raises is not None),
        complete,
    ),
    Check("observe.timing", "a clock that can't be right", lambda j: True, timing),
)
