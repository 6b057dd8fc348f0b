"""Commands that measure how well faults are seen, and write what they measured to docs/detection.md.

    python -m harness.detection.kill       every fault against every check: alone, and with the named check removed
    python -m harness.detection.margins    by what factor each fault is caught and how near clean cells come, by seed
    python -m harness.detection.alarms     is there a false alarm: a clean matrix many times over

``command``, ``journal`` and ``pool`` are what the first two share: options, records that survive kill -9, processes.
What a user runs on each machine is ``harness.selftest``; these are for whoever changes a check or a bound.
"""
