"""Facts that a case states of its own accord: an expected value beside the one that was seen."""

from __future__ import annotations

from collections.abc import Sequence

from harness.judge.check import Check, Judging, one
from harness.types import Finding

SHOWN = 5


def facts(j: Judging) -> Sequence[Finding]:
    """Every fact's expected value equals the seen one; probes that stated nothing at all proved nothing."""
    stated = j.obs.facts or ()
    if not stated:
        return one("case.facts", "at least one fact from the case's probes", "none")
    findings: list[Finding] = []
    for fact in stated:
        if fact.expected != fact.seen:
            findings += one("case.facts", fact.expected, fact.seen, fact.name)
    return findings[:SHOWN]


CHECKS = (
    Check(
        "case.facts",
        "a fact of the case's own that no general check looks at",
        lambda j: j.obs.facts is not None,
        facts,
    ),
)
