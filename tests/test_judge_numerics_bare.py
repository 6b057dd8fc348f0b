"""harness.judge.numerics_bare: what is red without an oracle, each on the one tensor that is wrong."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch

from harness.judge.numerics import judge_numerics
from harness.observe.types import Batch, LaterCall, Observations, RunSeen, StepTensors
from harness.program import NoOracle, Program
from harness.providers.protocol import ProgramProvider
from harness.types import Axes, Evidence, Spec

AXES = Axes("target", Spec("reference"), Spec("float8_current_scaling"))


def no_oracle(provider: ProgramProvider) -> Program:
    raise NoOracle("the layers are the library's own")


def step() -> StepTensors:
    return StepTensors(torch.arange(4.0), {"input0": torch.ones(4)})


def run() -> RunSeen:
    return RunSeen((step(), step()), (), {})


def later(change: Callable[[torch.Tensor], None] = lambda t: None) -> LaterCall:
    compiled = step()
    change(compiled.output)
    return LaterCall("steady call 3", True, compiled, step())


def observations() -> Observations:
    x = torch.ones(4)
    return Observations(
        Evidence.NATIVE,
        "cpu",
        rebuild=no_oracle,
        batches=(Batch((x,), x),) * 2,
        eager=run(),
        eager_again=run(),
        compiled=run(),
        later=(later(),),
    )


def test_a_clean_cell_has_no_finding_and_a_note() -> None:
    verdict = judge_numerics(observations(), AXES)
    assert verdict.findings == ()
    assert verdict.checks == ("numerics.finite", "numerics.storage", "numerics.eager", "numerics.later")
    assert verdict.notes == (
        "FP8 numerics not judged, there is no oracle: the layers are the library's own; "
        "results were looked at against eager alone",
    )


def changed(obs: Observations, which: str, index: int, value: float) -> Observations:
    getattr(obs, which).steps[index].output[2] = value
    return obs


@pytest.mark.parametrize(
    ("broken", "check", "where"),
    [
        (lambda o: changed(o, "compiled", 1, 9.0), "numerics.eager", "compiled, step 1, output"),
        (
            lambda o: dataclasses.replace(o, later=(later(lambda t: t.mul_(2)),)),
            "numerics.later",
            "steady call 3, output",
        ),
    ],
    ids=["other bits", "later bits"],
)
def test_each_check_fires_alone(broken: Callable[[Observations], Observations], check: str, where: str) -> None:
    (finding,) = judge_numerics(broken(observations()), AXES).findings
    assert (finding.check, finding.where) == (check, where)


def test_what_is_not_finite_is_red_also_where_both_sides_agree() -> None:
    obs = observations()
    for which in ("eager", "eager_again", "compiled"):
        changed(obs, which, 0, math.nan)
    findings = judge_numerics(obs, AXES).findings
    assert {finding.check for finding in findings} == {"numerics.finite"}
    infinite = dataclasses.replace(observations(), later=(LaterCall("steady", True, step(), step()),))
    for side in (infinite.later[0].compiled, infinite.later[0].eager):
        side.output[0] = math.inf
    assert {finding.check for finding in judge_numerics(infinite, AXES).findings} == {"numerics.later"}


def test_one_storage_for_two_runs_is_red() -> None:
    obs = observations()
    shared = dataclasses.replace(obs, compiled=obs.eager)
    assert "numerics.storage" in {finding.check for finding in judge_numerics(shared, AXES).findings}


def test_a_lost_gradient_and_another_shape_are_red() -> None:
    obs = observations()
    lost = dataclasses.replace(obs, compiled=RunSeen((step(), StepTensors(torch.arange(4.0), {})), (), {}))
    (finding,) = judge_numerics(lost, AXES).findings
    assert finding.got == "a tensor on one side only"
    reshaped = StepTensors(torch.arange(4.0).reshape(2, 2), {"input0": torch.ones(4)})
    other = dataclasses.replace(obs, compiled=RunSeen((step(), reshaped), (), {}))
    assert "(2, 2)" in judge_numerics(other, AXES).findings[0].got


def test_where_no_bits_are_owed_differences_are_not_judged() -> None:
    inductor = dataclasses.replace(AXES, backend="inductor")
    obs = changed(observations(), "compiled", 1, 9.0)
    verdict = judge_numerics(obs, inductor)
    assert verdict.findings == ()
    assert verdict.notes[0].endswith("results were looked at for finite values alone")
    # So is a tensor that two eager runs gave differently.
    wavering = changed(changed(observations(), "compiled", 1, 9.0), "eager_again", 1, 8.0)
    assert judge_numerics(wavering, AXES).findings == ()


def test_what_was_not_observed_is_not_listed() -> None:
    obs = dataclasses.replace(observations(), compiled=None, later=())
    assert judge_numerics(obs, AXES).checks == ("numerics.finite", "numerics.storage")


def test_a_program_that_draws_may_round_otherwise_and_no_more() -> None:
    near = dataclasses.replace(changed(observations(), "compiled", 1, 2.5), draws=True)  # 0.13 of the norm away
    verdict = judge_numerics(near, AXES)
    assert verdict.findings == ()
    assert "with the same draws, to within 25% of each tensor's norm and not bit for bit" in verdict.notes[0]
    (finding,) = judge_numerics(dataclasses.replace(near, draws=False), AXES).findings
    assert finding.got == "1 of 4 elements differ"
    for value in (3.5, math.nan):
        far = dataclasses.replace(changed(observations(), "compiled", 1, value), draws=True)
        assert "numerics.eager" in {finding.check for finding in judge_numerics(far, AXES).findings}
    zero = dataclasses.replace(observations(), draws=True)
    for run in (zero.eager, zero.eager_again):
        assert run is not None
        run.steps[0].output.zero_()
    assert [finding.check for finding in judge_numerics(zero, AXES).findings] == ["numerics.eager"]
    later_far = dataclasses.replace(observations(), draws=True, later=(later(lambda t: t.mul_(2)),))
    assert [finding.check for finding in judge_numerics(later_far, AXES).findings] == ["numerics.later"]
