"""harness.judge.later_batch: which later step the oracle follows, and what it says of a good and of a wrong one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from harness.judge.compare import distance
from harness.judge.later_batch import followed
from harness.judge.numerics import judge_numerics
from harness.judge.numerics_bench import Bench
from harness.observe.types import LaterCall, Observations
from harness.types import Axes
from tests.support.judge_stub import StubProvider, axes_for, observe

Observed = tuple[Observations, Axes]


@pytest.fixture(scope="module")
def observed() -> Observed:
    """One judged step, and a later one that is as right as the judged: the same batch, by a run of its own."""
    axes = axes_for(nesting="flat")
    obs = observe(axes, compiled=StubProvider())
    assert obs.eager_again is not None
    assert obs.compiled is not None
    (eager,), (compiled,) = obs.eager_again.steps, obs.compiled.steps
    call = LaterCall("profiled call", False, compiled, eager, 1, obs.batches[0])
    return replace(obs, later=(call,)), axes


def later(obs: Observations) -> LaterCall:
    call = obs.later[0]
    assert call.batch is not None
    return call


def with_eager(obs: Observations, factor: float, name: str = "output") -> Observations:
    """The later step's tensor ``name`` times ``factor``, in eager and in compiled code alike."""
    call = later(obs)
    changed = {}
    for side in ("eager", "compiled"):
        step = getattr(call, side)
        if name == "output":
            changed[side] = replace(step, output=step.output * factor)
        else:
            changed[side] = replace(step, grads={**step.grads, name: step.grads[name] * factor})
    return replace(obs, later=(replace(call, **changed), *obs.later[1:]))


def found(obs: Observations, axes: Axes) -> list[str]:
    return [f.where for f in judge_numerics(obs, axes).findings if f.check == "numerics.later"]


def test_a_right_step_is_far_inside(observed: Observed) -> None:
    obs, axes = observed
    bench = Bench(obs, axes)
    assert followed(bench.obs, bench.view.oracle) is not None
    assert not found(obs, axes)


@pytest.mark.parametrize("name", ["output", "input0"])
@pytest.mark.parametrize("factor", [2.0, 0.5, 0.0, -1.0, float("nan")])
def test_what_is_wrong_on_both_sides_is_seen(observed: Observed, name: str, factor: float) -> None:
    obs, axes = observed
    assert any("tap off" in where for where in found(with_eager(obs, factor, name), axes))


def test_a_transposed_result_is_seen_as_another_shape() -> None:
    own = torch.ones(2, 3, dtype=torch.float64)
    assert distance(own.t(), own) == float("inf")
    assert distance(own * 1.5, own) == 0.5


def test_no_step_is_followed_where_steps_differ(observed: Observed) -> None:
    obs, axes = observed
    oracle = Bench(obs, axes).view.oracle
    assert followed(replace(obs, later=tuple(replace(call, batch=None) for call in obs.later)), oracle) is None
    assert followed(replace(obs, later=()), oracle) is None
    first, last = oracle.steps[0], oracle.steps[-1]
    unlike = replace(oracle, steps=(replace(first, trace=first.trace[:-1]), last))
    assert followed(obs, unlike) is None
    updating = replace(oracle, program=replace(oracle.program, update=lambda model: None))
    assert followed(obs, updating) is None
