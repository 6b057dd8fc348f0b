"""harness.ctrl_c: a signal is told from a raise, and the handler that was there keeps its say."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from harness.ctrl_c import CtrlC


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def deliver() -> None:
    signal.raise_signal(signal.SIGINT)


def by_itself() -> None:
    raise KeyboardInterrupt


def came(raises: Callable[[], object]) -> bool:
    with CtrlC() as ctrl_c:
        try:
            raises()
        except KeyboardInterrupt:
            return ctrl_c.came
    raise AssertionError("nothing was raised")


def test_a_signal_came_and_a_raise_did_not() -> None:
    assert came(deliver)
    assert not came(by_itself)


def test_it_is_told_of_the_inner_and_of_the_outer_of_two() -> None:
    with CtrlC() as outer:
        assert came(deliver)
        assert outer.came
    with CtrlC() as outer:
        assert not came(by_itself)
        assert not outer.came


def test_handlers_are_as_they_were() -> None:
    came(deliver)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_where_it_cannot_be_known_it_may_have_come() -> None:
    def handler_of_the_program() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        deliver()

    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(came(by_itself)))
    thread.start()
    thread.join()
    assert found == [True]
    assert came(handler_of_the_program)


def test_a_handler_that_the_program_left_stays() -> None:
    def own(number: int, frame: object) -> None: ...

    with CtrlC():
        signal.signal(signal.SIGINT, own)
    assert signal.getsignal(signal.SIGINT) is own


def test_where_signals_are_ignored_only_code_raises() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert not came(by_itself)
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
