"""Do memory, open files or threads grow from call to call?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.judge.check import Check, Judging, one
from harness.observe.handles import files_grew, threads_grew
from harness.observe.kept import STRETCH, STRETCHES, memory_grew, tensors_pile_up
from harness.observe.types import Left
from harness.types import Finding

NAME = "state.memory"
HANDLES = "state.handles"
_SHOWN = 3  # kinds of tensors in a finding


def memory(j: Judging) -> Sequence[Finding]:
    """From one steady call to the next no memory stays in use that wasn't before: a library may keep what it likes
    (histories, cached weights, a pool), but once, not once for each call."""
    kept = j.obs.kept
    if kept is None or not memory_grew(kept):
        return ()
    seen = _tensors(kept.left) if tensors_pile_up(kept.left) else _bytes(kept.allocated)
    return one(NAME, "no more memory in use than before", seen, "steady calls")


def handles_piled_up(j: Judging) -> Sequence[Finding]:
    """From one steady call to the next no file stays open, and no thread running, that wasn't before."""
    counts = j.obs.kept.handles if j.obs.kept else ()
    findings: list[Finding] = []
    if files_grew(counts):
        seen = f"{counts[STRETCHES].files - counts[0].files} more after {STRETCH * STRETCHES} calls"
        findings += one(HANDLES, "no more open files than before", seen, "steady calls")
    if threads_grew(counts):
        seen = f"{counts[STRETCHES].threads - counts[0].threads} more after {STRETCH * STRETCHES} calls"
        findings += one(HANDLES, "no more threads than before", seen, "steady calls")
    return findings


def _tensors(left: Sequence[Left]) -> str:
    counts, sizes = Counter(item.what for item in left), Counter[str]()
    for item in left:
        sizes[item.what] += item.bytes
    shown = [f"{counts[what]} x {what}" for what, _ in sizes.most_common(_SHOWN)]
    shown += [f"{len(counts) - _SHOWN} other kinds"] if len(counts) > _SHOWN else []
    total = sum(sizes.values())
    return f"{len(left)} tensors more after {STRETCH * STRETCHES} calls, {total:,} bytes: {', '.join(shown)}"


def _bytes(allocated: Sequence[int]) -> str:
    more = allocated[-1] - allocated[0]
    return f"{more:,} bytes more of the GPU after {len(allocated) - 1} calls, in no tensor that piles up in Python"


CHECKS = (
    Check(NAME, "memory that grows with every call", lambda j: j.obs.kept is not None, memory),
    Check(
        HANDLES,
        "open files or threads that grow with every call",
        lambda j: j.obs.kept is not None and bool(j.obs.kept.handles),
        handles_piled_up,
    ),
)
