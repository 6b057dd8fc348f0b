"""Who gets which slot of which GPU, over processes that come, go and are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.run import leases
from harness.run.leases import Lease, LeaseBook, directory, joined, lease_alone, lease_workers, slots_for, spread
from tests.support.fake_gpus import gpu

TWO = (gpu(0), gpu(1))  # three workers fit on each


@pytest.fixture
def book(tmp_path: Path) -> LeaseBook:
    return LeaseBook(tmp_path, "r1")


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(leases, "SAY_SECONDS", 0.03)


def places(held: list[Lease] | None) -> list[tuple[int, int | None]]:
    return [(lease.gpu.index, lease.slot) for lease in held or []]


@pytest.mark.parametrize(
    ("count", "slots", "used", "expected"),
    [
        (4, {0: 3, 1: 3}, {}, [0, 1, 0, 1]),
        (3, {0: 3, 1: 3}, {0: 2}, [1, 1, 0]),
        (3, {0: 1, 1: 3}, {}, [0, 1, 1]),
        (2, {0: 1, 1: 3}, {0: 1}, [1, 1]),
        (4, {0: 1, 1: 1}, {}, [0, 1, 0, 1]),  # more than fits: evenly all the same
        (0, {0: 1}, {}, []),
    ],
)
def test_spread(count: int, slots: dict[int, int], used: dict[int, int], expected: list[int]) -> None:
    assert spread(count, slots, used) == expected


@pytest.mark.parametrize(
    ("wanted", "slots"), [(1, {0: 3, 1: 3}), (6, {0: 3, 1: 3}), (7, {0: 4, 1: 3}), (9, {0: 5, 1: 4})]
)
def test_slots_are_what_fits_or_what_was_asked_for(wanted: int, slots: dict[int, int]) -> None:
    assert slots_for(TWO, wanted) == slots


def test_a_gpu_of_unknown_or_little_memory_has_one_slot() -> None:
    assert slots_for((gpu(0, None), gpu(1, 4096)), 1) == {0: 1, 1: 1}


def test_slots_are_taken_evenly_and_freed_ones_first(book: LeaseBook) -> None:
    held = book.claim(TWO, 4)
    assert places(held) == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert held is not None
    held[2].release()
    assert places(book.claim(TWO, 1)) == [(0, 1)]
    assert book.free(TWO) == {0: 1, 1: 1}


def test_all_or_nothing(book: LeaseBook) -> None:
    held = book.claim(TWO, 5)
    assert book.claim(TWO, 2) is None
    assert book.free(TWO) == {0: 0, 1: 1}, "who gets nothing holds nothing"
    assert places(book.claim(TWO, 1)) == [(1, 2)]
    for lease in held or []:
        lease.release()
        lease.release()
    assert book.free(TWO) == {0: 3, 1: 2}


def test_more_than_fits_is_done_as_told_but_only_once(book: LeaseBook) -> None:
    held = book.claim(TWO, 9)
    assert sorted(places(held)) == [(0, n) for n in range(5)] + [(1, n) for n in range(4)]
    assert book.claim(TWO, 9) is None
    assert book.claim(TWO, 1) is None


def test_two_settings_that_name_one_gpu_mean_the_same(book: LeaseBook) -> None:
    assert places(book.claim((gpu(1),), 3)) == [(1, 0), (1, 1), (1, 2)]
    assert places(book.claim(TWO, 2)) == [(0, 0), (0, 1)]


def test_a_whole_gpu_is_one_without_anybody(book: LeaseBook) -> None:
    shared = book.claim((TWO[0],), 1)
    whole = book.claim_whole(TWO)
    assert whole is not None
    assert (whole.gpu.index, whole.slot, whole.is_alone) == (1, None, True)
    assert book.claim_whole(TWO) is None
    assert book.free(TWO) == {0: 2, 1: 0}
    assert shared is not None
    assert not shared[0].is_alone
    whole.release()
    shared[0].release()
    again = book.claim_whole(TWO)
    assert again is not None
    assert again.gpu.index == 0


def test_a_slot_is_free_when_both_its_worker_and_its_pytest_are_gone(book: LeaseBook) -> None:
    one = (gpu(0, 4096),)
    (lease,) = book.claim(one, 1) or []
    worker = joined(lease.as_text())
    assert worker == lease
    lease.release()
    assert book.claim(one, 1) is None
    assert book.claim_whole(one) is None
    worker.release()
    (later,) = book.claim(one, 1) or []
    assert later.slot == 0


def test_a_slot_that_somebody_else_has_by_now_can_not_be_joined(book: LeaseBook) -> None:
    (lease,) = book.claim((TWO[0],), 1) or []
    text = lease.as_text()
    lease.release()
    whole = book.claim_whole((TWO[0],))
    assert whole is not None
    with pytest.raises(BlockingIOError):
        joined(text)


HOLD = (
    "import sys; from pathlib import Path; from harness.run.leases import LeaseBook\n"
    "from tests.support.fake_gpus import gpu\n"
    "book = LeaseBook(Path(sys.argv[1]), 'other')\n"
    "held = book.claim_whole((gpu(0),)) if sys.argv[2] == 'whole' else book.claim((gpu(0),), int(sys.argv[2]))\n"
    "print('held' if held else 'nothing', flush=True); sys.stdin.read()\n"
)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Another process that holds slots of GPU 0, or all of it."""
    started: list[subprocess.Popen[str]] = []

    def hold(what: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD, str(tmp_path), what]
        root = Path(__file__).parents[1]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("what", ["3", "whole"])
def test_kill_9_ends_a_lease(book: LeaseBook, elsewhere: Callable[[str], subprocess.Popen[str]], what: str) -> None:
    process = elsewhere(what)
    assert book.claim((TWO[0],), 1) is None
    assert book.holders(TWO) == [f"process {process.pid} of run other"]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert book.holders(TWO) == []
    assert len(book.claim((TWO[0],), 3) or []) == 3


@pytest.mark.usefixtures("fast")
def test_who_waits_says_why_and_goes_on_when_there_is_room(
    tmp_path: Path, elsewhere: Callable[[str], subprocess.Popen[str]]
) -> None:
    process = elsewhere("2")
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 2:
            process.kill()
            process.wait()

    held = lease_workers({leases.DIRECTORY: str(tmp_path)}, (TWO[0],), 2, "mine", say)
    assert places(held) == [(0, 0), (0, 1)]
    assert said[0] == (
        "waiting for a GPU for 2 worker(s): 1 of 3 slots free on GPU 0 (NVIDIA L4); "
        f"held by process {process.pid} of run other"
    )


@pytest.mark.usefixtures("fast")
def test_alone_waits_for_others_and_not_for_ever(tmp_path: Path, book: LeaseBook) -> None:
    env = {leases.DIRECTORY: str(tmp_path)}
    (beside,) = book.claim((TWO[0],), 1) or []
    said: list[str] = []
    late = lease_alone(env, (TWO[0],), "r2", said.append, seconds=0.05)
    assert (late.is_alone, late.slot) == (False, 1)
    assert "for a cell that must be alone" in said[0]
    beside.release()
    late.release()
    said.clear()
    assert lease_alone(env, (TWO[0],), "r2", said.append).is_alone
    assert said == []


def test_without_lock_files_workers_still_get_a_gpu_each_and_nobody_claims_to_be_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    env = {leases.DIRECTORY: str(tmp_path / "file" / "below")}
    said: list[str] = []
    assert places(lease_workers(env, TWO, 3, "r", said.append)) == [(0, None), (1, None), (0, None)]
    assert "no GPU leases, so that other runs are not kept away" in said[0]
    assert not lease_alone(env, TWO, "r", said.append).is_alone


def test_the_directory_is_this_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert directory({leases.DIRECTORY: str(tmp_path / "a" / "b")}) == tmp_path / "a" / "b"
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="not a directory of this user's"):
        directory({leases.DIRECTORY: str(tmp_path / "file")})
    default = directory({})
    assert default == Path(f"/tmp/fp8-harness-{os.getuid()}")
    assert default.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(os, "getuid", lambda: default.stat().st_uid + 1)
    monkeypatch.setattr(Path, "mkdir", lambda *args, **kwargs: None)
    monkeypatch.setattr(Path, "lstat", lambda self: default.stat())
    with pytest.raises(NotADirectoryError, match="not a directory of this user's"):
        directory({})
