"""The checks that can turn a cell red: one of these a fault, or an entry of ``cross``, is caught by."""

from __future__ import annotations

# Ends of a process that no check in it can tell of; any other red has a check of its own.
OF_THE_RUN = ("run.crash", "run.timeout", "run.oom")
# What else the layer that runs cells can find: harness.run.reconcile, harness.run.postmortem, harness.run.execute.
_RUN_LAYER = (*OF_THE_RUN, "run.device", "run.flaky", "run.infra", "run.recorded", "run.reported_once")


def known_checks() -> tuple[str, ...]:
    """Every name that a finding about a product may have; those of the run last. Imports torch."""
    from harness.judge.verdict import CHECK_NAMES

    return (*CHECK_NAMES, *_RUN_LAYER)
