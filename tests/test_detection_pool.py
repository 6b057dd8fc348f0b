"""harness.detection.pool: a job that dies, hangs, or spoils its process, costs no other job anything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.detection.pool import JobFailed, isolated


@dataclass(frozen=True)
class Done:
    job: str
    pid: int
    spoiled: bool = False


def work(job: str) -> Done:
    if job == "die":
        os._exit(3)
    if job == "raise":
        raise ValueError("not this one")
    if job == "unpicklable":
        return Done(lambda: None, 0)  # type: ignore[arg-type]
    if job.startswith("hang:"):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        Path(job.removeprefix("hang:")).write_text(f"{os.getpid()} {child.pid}")
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        threading.Event().wait()
    return Done(job, os.getpid(), spoiled=job == "spoil")


def lost(job: str, why: str) -> Done:
    return Done(f"{job.partition(':')[0]}: lost, {why}", 0)


def is_gone(pid: int) -> bool:
    """Ended, or a zombie that nobody has waited for yet."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_a_death_and_a_spoiled_process_cost_no_other_job() -> None:
    done = list(isolated(work, ["a", "b", "die", "spoil", "c"], 1, lost))
    assert [one.job for one in done] == ["a", "b", "die: lost, the process died: exit code 3", "spoil", "c"]
    a, b, _, spoil, c = (one.pid for one in done)
    assert a == b
    assert len({a, spoil, c, os.getpid()}) == 4


def test_nothing_to_do_starts_no_process() -> None:
    assert list(isolated(work, [], 4, lost)) == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_a_job_that_hangs_is_told_ended_with_what_it_started_and_the_rest_go_on(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    done = list(isolated(work, ["a", f"hang:{file}", "b"], 1, lost, timeout=1.5))
    assert [one.job for one in done] == ["a", "hang: lost, still running after 1.5 s, its process was ended", "b"]
    assert done[0].pid != done[2].pid
    assert all(is_gone(int(pid)) for pid in file.read_text().split())


def test_leaving_the_iterator_does_not_wait_for_a_job_that_hangs(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    outcomes = isolated(work, [f"hang:{file}", "a"], 2, lost)
    assert next(outcomes).job == "a"
    while not file.exists() or " " not in file.read_text():
        time.sleep(0.05)
    started = time.monotonic()
    outcomes.close()  # type: ignore[attr-defined]
    assert time.monotonic() - started < 60
    assert all(is_gone(int(pid)) for pid in file.read_text().split())


@pytest.mark.parametrize(("job", "text"), [("raise", "ValueError: not this one"), ("unpicklable", "pickle")])
def test_what_the_function_raises_ends_all_with_its_traceback(job: str, text: str) -> None:
    with pytest.raises(JobFailed, match=text):
        list(isolated(work, [job, "a"], 1, lost))
