"""harness.detection.pool: a job that dies, or spoils its process, costs no other job anything."""

from __future__ import annotations

import os
from dataclasses import dataclass

from harness.detection.pool import isolated


@dataclass(frozen=True)
class Done:
    job: str
    pid: int
    spoiled: bool = False


def work(job: str) -> Done:
    if job == "die":
        os._exit(3)
    return Done(job, os.getpid(), spoiled=job == "spoil")


def lost(job: str, why: str) -> Done:
    assert why
    return Done(f"{job}: lost", 0)


def test_a_death_and_a_spoiled_process_cost_no_other_job() -> None:
    done = list(isolated(work, ["a", "b", "die", "spoil", "c"], 1, lost))
    assert [one.job for one in done] == ["a", "b", "die: lost", "spoil", "c"]
    a, b, _, spoil, c = (one.pid for one in done)
    assert a == b
    assert len({a, spoil, c, os.getpid()}) == 4


def test_nothing_to_do_starts_no_process() -> None:
    assert list(isolated(work, [], 4, lost)) == []
