"""cases/threads.py: calls in threads come back in order, wait for each other, and raise where somebody waits."""

from __future__ import annotations

import threading

import pytest
import torch

from cases.threads import in_thread, together


def test_a_call_runs_in_another_thread_that_has_ended() -> None:
    seen: list[threading.Thread] = []

    def call() -> torch.Tensor:
        seen.append(threading.current_thread())
        return torch.ones(1)

    assert in_thread(call).item() == 1
    assert seen[0] is not threading.main_thread()
    assert not seen[0].is_alive()


def test_results_are_in_the_order_of_the_calls_whoever_is_first() -> None:
    second_is_done = threading.Event()

    def first() -> torch.Tensor:
        assert second_is_done.wait(10)
        return torch.tensor(1)

    def second() -> torch.Tensor:
        second_is_done.set()
        return torch.tensor(2)

    assert [int(result) for result in together([first, second])] == [1, 2]


def test_an_exception_of_a_thread_is_raised_by_whoever_waits() -> None:
    def call() -> torch.Tensor:
        raise ValueError("in the thread")

    with pytest.raises(ValueError, match="in the thread"):
        in_thread(call)
    with pytest.raises(ValueError, match="in the thread"):
        together([lambda: torch.ones(1), call])
