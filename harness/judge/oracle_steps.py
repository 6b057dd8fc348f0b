"""One step of a program on the oracle: new leaves, forward, backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from harness.judge.oracle_provider import OracleProvider, OracleUnsupported
from harness.observe.types import Batch
from harness.program import Program, Step

OUTPUT = "output"


def _nothing() -> None:
    """A provider without scales of its own has nothing to forget."""


@dataclass(frozen=True)
class Live:
    """A step whose autograd graph is alive."""

    program: Program
    step: Step
    output: torch.Tensor
    inputs: Mapping[str, torch.Tensor]
    parameters: Mapping[str, torch.Tensor]
    wanted: frozenset[str]


@dataclass(frozen=True)
class At:
    """Which step of which run is being followed."""

    index: int
    compiled: bool = False


def forward(
    program: Program,
    batch: Batch,
    wanted: frozenset[str],
    at: At,
    dtype: torch.dtype = torch.float64,
    reset: Callable[[], None] = _nothing,
) -> Live:
    """The program's step on new leaves in ``dtype``. ``wanted``: inputs that need a gradient, "input0"...

    ``reset`` forgets the oracle's scales where the program resets its provider.
    """
    leaves = []
    for i, tensor in enumerate(batch.inputs):
        leaf = tensor.detach().clone()
        if leaf.is_floating_point():
            leaf = leaf.to(dtype).requires_grad_(tensor.requires_grad or f"input{i}" in wanted)
        leaves.append(leaf)
    step = Step(at.index, program.forward, program.recipes(), tuple(leaves), at.compiled, reset=reset)
    output = program.run(step)
    inputs = {f"input{i}": leaf for i, leaf in enumerate(leaves) if leaf.requires_grad}
    parameters = {name: p for name, p in program.model.named_parameters() if p.requires_grad}
    return Live(program, step, output, inputs, parameters, wanted)


def backward(provider: OracleProvider, live: Live, batch: Batch, *, retain: bool = False) -> Mapping[str, torch.Tensor]:
    """Gradients of all inputs and parameters that got one, float64."""
    named = {**live.inputs, **live.parameters}
    if not live.output.requires_grad:
        return {}
    grads = gradients(provider, live, list(named.values()), batch, retain=retain)
    return {name: g.to(torch.float64) for name, g in zip(named, grads, strict=True) if g is not None}


def whole_step(
    provider: OracleProvider,
    program: Program,
    batch: Batch,
    wanted: frozenset[str],
    at: At,
    dtype: torch.dtype = torch.float64,
    reset: Callable[[], None] = _nothing,
) -> Mapping[str, torch.Tensor]:
    """Output and gradients by name, float64, of one step in ``dtype`` that begins on ``provider``, without a tap's
    records; arguments as in :func:`forward`."""
    program.model.to(dtype)
    provider.begin_step()
    live = forward(program, batch, wanted, at, dtype, reset)
    grads = backward(provider, live, batch)
    return {OUTPUT: live.output.detach().to(torch.float64), **grads}


def gradients(
    provider: OracleProvider, live: Live, wanted: Sequence[torch.Tensor], batch: Batch, *, retain: bool = False
) -> list[torch.Tensor | None]:
    """Gradients of ``wanted``, summed over as many passes as the program makes."""
    around = live.program.around_backward
    totals: list[torch.Tensor | None] = [None] * len(wanted)

    def one_pass() -> None:
        keep = retain or around is not None
        gradient = batch.grad_output.to(live.output)
        with provider.backward_pass(live.output, gradient):
            found = torch.autograd.grad(live.output, wanted, gradient, allow_unused=True, retain_graph=keep)
        for index, grad in enumerate(found):
            known = totals[index]
            totals[index] = grad if known is None or grad is None else known + grad

    if around is None:
        one_pass()
    else:
        around(live.step, one_pass)
    return totals


def load_parameters(model: torch.nn.Module, parameters: Mapping[str, torch.Tensor]) -> None:
    """Copy the judged program's initial parameters into the oracle's model.

    Raises:
        OracleUnsupported: the two models differ in names or shapes.
    """
    own = dict(model.named_parameters())
    if {n: tuple(p.shape) for n, p in own.items()} != {n: tuple(p.shape) for n, p in parameters.items()}:
        raise OracleUnsupported("the program has other parameters on the oracle than on the provider")
    with torch.no_grad():
        for name, value in parameters.items():
            own[name].copy_(value.detach().to(own[name]))


def load_buffers(model: torch.nn.Module, buffers: Mapping[str, torch.Tensor]) -> None:
    """Copy those of the judged program's initial buffers that the oracle's model has too, in name and shape."""
    with torch.no_grad():
        for name, own in model.named_buffers():
            if name in buffers and buffers[name].shape == own.shape and own.is_floating_point():
                own.copy_(buffers[name].to(own))
