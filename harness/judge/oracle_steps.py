"""One step of a program on the oracle: new leaves, forward, backward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from harness.judge.oracle_provider import OracleProvider, OracleUnsupported
from harness.observe.types import Batch
from harness.program import Program

OUTPUT = "output"


@dataclass(frozen=True)
class Live:
    """A step whose autograd graph is alive."""

    output: torch.Tensor
    inputs: Mapping[str, torch.Tensor]
    parameters: Mapping[str, torch.Tensor]
    wanted: frozenset[str]


def forward(program: Program, batch: Batch, wanted: frozenset[str], dtype: torch.dtype = torch.float64) -> Live:
    """The program's forward on new leaves in ``dtype``. ``wanted``: inputs that need a gradient, "input0"..."""
    leaves = []
    for i, tensor in enumerate(batch.inputs):
        leaf = tensor.detach().clone()
        if leaf.is_floating_point():
            leaf = leaf.to(dtype).requires_grad_(tensor.requires_grad or f"input{i}" in wanted)
        leaves.append(leaf)
    output = program.forward(program.recipes(), *leaves)
    inputs = {f"input{i}": leaf for i, leaf in enumerate(leaves) if leaf.requires_grad}
    parameters = {name: p for name, p in program.model.named_parameters() if p.requires_grad}
    return Live(output, inputs, parameters, wanted)


def backward(
    provider: OracleProvider, live: Live, batch: Batch, *, retain: bool = False
) -> Mapping[str, torch.Tensor]:
    """Gradients of all inputs and parameters that got one, float64."""
    named = {**live.inputs, **live.parameters}
    if not live.output.requires_grad:
        return {}
    grad_output = batch.grad_output.to(live.output)
    with provider.backward_pass():
        grads = torch.autograd.grad(
            live.output, list(named.values()), grad_output, allow_unused=True, retain_graph=retain
        )
    return {name: g.to(torch.float64) for name, g in zip(named, grads, strict=True) if g is not None}


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
