"""harness.detection.kill_measure: one observation, judged by each check alone; what can't be judged says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.detection import kill_measure
from harness.detection.kill_measure import Job, Killed, lost, measure
from harness.judge.check import Judging
from harness.observe.types import ErrorSeen, StateDiff
from harness.providers.protocol import ProviderUnavailable
from harness.types import Cell
from tests.support.judging import judging
from tests.support.kills import killed


def seen(monkeypatch: pytest.MonkeyPatch, outcome: Judging | Exception, fault: str = "leaky_exit") -> Killed:
    """The record of a cell that ends in ``outcome``."""

    @contextmanager
    def observed(cell: Cell) -> Iterator[Judging]:
        if isinstance(outcome, Exception):
            raise outcome
        yield outcome

    monkeypatch.setattr(kill_measure, "observed", observed)
    return measure(Job(fault, 0))


LEAK = StateDiff("eager", "fp8_enabled", "False", "True")


def test_a_job_draws_its_cell() -> None:
    faulty, twin = Job("leaky_exit", 7, "positive").cells
    assert (faulty.axes.provider.label, twin.axes.provider.label) == ("reference+leaky_exit", "reference")
    assert (faulty.axes.seed, faulty.axes.data) == (twin.axes.seed, twin.axes.data) == (7, "positive")
    assert Job("leaky_exit", 0).cells[0].axes.data == "normal"


def test_a_fault_that_one_check_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    one = seen(monkeypatch, judging(state_diffs=(LEAK,)))
    assert (one.alone, one.removed, one.together) == (("state.unchanged",), (), ("state.unchanged",))
    assert one.caught
    assert (one.others, one.dependent, one.bare, one.error, one.spoiled) == ((), (), "", "", False)
    assert "fp8_enabled" in one.finding


def test_a_fault_that_another_check_sees_too(monkeypatch: pytest.MonkeyPatch) -> None:
    one = seen(monkeypatch, judging(state_diffs=(LEAK,), census={"graphs": 2}))
    assert one.alone == one.together == ("state.unchanged", "compile.graphs")
    assert one.removed == one.others == ("compile.graphs",)


def test_a_fault_that_only_others_see_is_not_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    one = seen(monkeypatch, judging(census={"graphs": 2}))
    assert not one.caught
    assert (one.alone, one.finding) == (("compile.graphs",), "")


def test_a_red_that_no_check_gave_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = (("OutOfMemoryError<RuntimeError<Exception", "CUDA out of memory"),)
    one = seen(monkeypatch, judging(errors=(ErrorSeen("run", "OutOfMemoryError", "CUDA out of memory", chain),)))
    assert one.bare == "oom"
    assert seen(monkeypatch, judging()).bare == ""


def test_what_cant_be_observed_is_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(monkeypatch, ProviderUnavailable("no such library")).unavailable == "no such library"
    broken = seen(monkeypatch, ValueError("observer broke"))
    assert (broken.error, broken.caught) == ("ValueError: observer broke", False)
    assert lost(Job("leaky_exit", 3), "killed").error == "killed"


@pytest.mark.parametrize("left", ["compile_switches", "lost_context"])
def test_a_process_that_must_not_go_on_says_so(monkeypatch: pytest.MonkeyPatch, left: str) -> None:
    monkeypatch.setattr(kill_measure, left, lambda: ["suppress_errors"])
    assert seen(monkeypatch, judging()).spoiled


def test_checks_that_answer_otherwise_in_company_are_named() -> None:
    assert killed("f", "a", "b", "c").dependent == ()
    assert killed("f", "a", "b", removed=()).dependent == ("b",)
    assert killed("f", "a", together=()).dependent == ("a",)
    assert killed("f", "a", removed=("d",), together=("a", "d")).dependent == ("d",)


def test_a_real_fault() -> None:
    one = measure(Job("believes_too_much", 0))
    assert (one.named, one.alone, one.evidence) == ("support.belief", ("support.belief",), "traced")
    assert one.seconds > 0
