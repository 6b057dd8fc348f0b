"""What can be said of the results of a cell that is only traced: which there are, and of what shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from harness.judge.check import one
from harness.judge.oracle_provider import OracleProvider, OracleUnsupported
from harness.judge.oracle_steps import OUTPUT, At, backward, forward
from harness.observe.run import Batches
from harness.observe.types import Batch, Observations
from harness.program import NoOracle
from harness.types import Axes, Finding

CHECK = "compile.gradients"

Shapes = Mapping[str, tuple[int, ...]]


def judge_traced(obs: Observations, axes: Axes) -> tuple[Sequence[Finding], str]:
    """Findings of ``compile.gradients``, or a note on why there can be none.

    The leaves that get a gradient in a traced step, and its output's shape, are those of the same program on the
    oracle, which computes it with real tensors and without any quantisation. Sees a gradient that stops on its way
    where only the pretended architecture goes: no value is needed for that.
    """
    try:
        expected = expected_shapes(obs, axes)
    except (OracleUnsupported, NoOracle) as error:
        return (), f"{CHECK} not judged, there is no oracle: {error}"
    for index, (wanted, step) in enumerate(zip(expected, obs.traced, strict=True)):
        if wanted != step.shapes:
            differing = sorted(name for name in {*wanted, *step.shapes} if wanted.get(name) != step.shapes.get(name))
            expects, got = (", ".join(_words(name, it.get(name)) for name in differing) for it in (wanted, step.shapes))
            return one(CHECK, expects, got, f"traced step {index + 1}"), ""
    return (), ""


def expected_shapes(obs: Observations, axes: Axes) -> Sequence[Shapes]:
    """Shapes of the output and of each leaf's gradient on the oracle, step by step.

    Raises:
        OracleUnsupported, NoOracle: the oracle can't run the program.
    """
    if obs.rebuild is None:
        raise OracleUnsupported("the program can't be rebuilt")
    provider = OracleProvider(getattr(torch, axes.dtype), mode="exact")
    program = obs.rebuild(provider)
    batches = Batches(program, axes)
    shapes: list[Shapes] = []
    for index in range(len(obs.traced)):
        provider.begin_step()
        inputs = batches.inputs(index)
        # As its eager code does: what a program does around compiled code (compiled autograd) has no use on the oracle.
        live = forward(program, Batch(inputs, torch.empty(0)), frozenset(), At(index), reset=provider.forget)
        grads = backward(provider, live, Batch(inputs, torch.ones_like(live.output)))
        shapes.append({name: tuple(tensor.shape) for name, tensor in {OUTPUT: live.output, **grads}.items()})
    return shapes


def _words(name: str, shape: tuple[int, ...] | None) -> str:
    what = name if name == OUTPUT else f"a gradient of {name}"
    return f"no {what.removeprefix('a ')}" if shape is None else f"{what} {shape}"
