"""harness.observe.handles: open files and threads are counted, and only what piles up is growth."""

from __future__ import annotations

import os
import threading

import pytest

from harness.judge.memory_check import handles_piled_up
from harness.observe.handles import files_grew, handles, threads_grew
from harness.observe.types import Handles, Kept
from tests.support.judging import judging


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system lists no open files there")
def test_an_open_file_is_counted_while_it_is_open() -> None:
    before = handles().files
    descriptor = os.open(os.devnull, os.O_RDONLY)
    assert handles().files == before + 1
    os.close(descriptor)
    assert handles().files == before > 0


def test_a_thread_is_counted_while_it_runs() -> None:
    before, end = handles().threads, threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    assert handles().threads == before + 1
    end.set()
    thread.join()


def test_without_lists_of_the_systems_pythons_threads_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(path: str) -> list[str]:
        raise OSError

    monkeypatch.setattr(os, "listdir", unreadable)
    assert handles() == Handles(0, threading.active_count())


@pytest.mark.parametrize(
    ("counts", "grew"),
    [
        ((5, 6, 7, 8, 8), True),
        ((5, 8, 11, 14, 15), True),
        ((5, 6, 7, 8, 7), False),  # garbage that waited for a collection
        ((5, 9, 9, 9, 9), False),  # made late, once
        ((5, 6, 6, 7, 7), False),
        ((5, 5, 5, 5, 6), False),
        ((0, 0, 0, 0, 0), False),
        ((), False),
    ],
)
def test_growth_is_more_after_each_stretch(counts: tuple[int, ...], grew: bool) -> None:
    files, threads = tuple(Handles(count, 3) for count in counts), tuple(Handles(3, count) for count in counts)
    assert (files_grew(files), threads_grew(files)) == (grew, False)
    assert (files_grew(threads), threads_grew(threads)) == (False, grew)
    assert len(handles_piled_up(judging(kept=Kept(10, handles=files)))) == grew
    assert len(handles_piled_up(judging(kept=Kept(10, handles=threads)))) == grew


def test_the_finding_says_how_many() -> None:
    counts = tuple(Handles(5 + 3 * step, 2 + step) for step in (0, 1, 2, 3, 3))
    files, threads = handles_piled_up(judging(kept=Kept(10, handles=counts)))
    assert (files.got, threads.got) == ("9 more after 9 calls", "3 more after 9 calls")
