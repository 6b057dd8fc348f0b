"""Eager code that is known to be wrong: the defect must be seen, and the compiled run is judged without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.judge.numerics import judge_numerics
from harness.judge.wrong_eager import CHECK
from harness.observe.types import ErrorSeen, Observations
from harness.types import Evidence
from tests.support import judge_faults as faults
from tests.support.judge_stub import StubProvider, axes_for, observe

AXES = axes_for(nesting="flat")


def expecting(obs: Observations, error: str = "") -> Observations:
    assert obs.expects is not None
    return replace(obs, expects=replace(obs.expects, eager_is_wrong="a reason", eager_error=error))


@pytest.fixture(scope="module")
def right() -> Observations:
    """Both runs are as the oracle has them."""
    return observe(AXES, StubProvider(), StubProvider())


@pytest.fixture(scope="module")
def wrong() -> Observations:
    """The eager run has lost its bias."""
    return observe(AXES, faults.BiasLost(), StubProvider())


def ended(kind: str) -> ErrorSeen:
    return ErrorSeen("backward", kind, "tensors differ", ((f"{kind}<RuntimeError<Exception", "tensors differ"),))


def test_a_deviation_is_noted_and_compiled_is_judged_by_the_oracle_alone(wrong: Observations) -> None:
    verdict = judge_numerics(expecting(wrong), AXES)
    assert verdict.findings == ()
    assert any("wrong as documented (a reason)" in note for note in verdict.notes)
    assert {CHECK, "numerics.program", "numerics.codes", "numerics.alpha"} <= set(verdict.checks)
    assert "numerics.eager" not in verdict.checks
    assert {f.check for f in judge_numerics(wrong, AXES).findings} >= {"numerics.program", "numerics.eager"}


def test_eager_code_that_is_right_says_that_the_defect_is_gone(right: Observations) -> None:
    (finding,) = judge_numerics(expecting(right), AXES).findings
    assert (finding.check, finding.where) == (CHECK, "eager")


def test_a_wrong_compiled_run_is_red_all_the_same(wrong: Observations) -> None:
    both = replace(wrong, compiled=wrong.eager)
    assert {f.check for f in judge_numerics(expecting(both), AXES).findings} >= {"numerics.program"}


@pytest.mark.parametrize(
    ("error", "documented", "red"),
    [("CheckpointError", "CheckpointError", False), ("KeyError", "CheckpointError", True)],
)
def test_eager_runs_that_ended_with_an_exception(right: Observations, error: str, documented: str, red: bool) -> None:
    failed = replace(right, eager=None, eager_again=None, eager_errors=(ended(error),))
    verdict = judge_numerics(expecting(failed, documented), AXES)
    assert [f.check for f in verdict.findings] == [CHECK] * red
    assert "numerics.program" in verdict.checks
    undocumented = judge_numerics(expecting(failed), AXES)
    assert [f.check for f in undocumented.findings] == [CHECK]


def test_without_a_compiled_run_eager_is_judged_alone(wrong: Observations) -> None:
    verdict = judge_numerics(expecting(replace(wrong, compiled=None)), AXES)
    assert (verdict.findings, verdict.checks) == ((), (CHECK,))


def test_what_did_not_execute_is_not_judged(wrong: Observations) -> None:
    verdict = judge_numerics(replace(expecting(wrong), evidence=Evidence.TRACED), AXES)
    assert verdict.checks == ()
