"""cases.frozen: which gradients its program leaves, and which products it runs."""

from __future__ import annotations

from collections import Counter

import torch

from cases.frozen import build
from harness.faults.frozen_weight_in_bf16 import FAULT
from harness.program import CaseContext
from harness.providers.reference import ReferenceProvider
from harness.types import Axes, Spec

AXES = Axes("frozen", Spec("reference"), Spec("float8_current_scaling"))


def products(provider: ReferenceProvider) -> tuple[Counter[tuple[str, str]], set[str], torch.Tensor]:
    """Products by (layer, product) of one step, the parameters that got a gradient, and the input."""
    program = build(CaseContext(provider, AXES, None, torch.device("cpu"), torch.bfloat16))
    (x,) = program.make_inputs(torch.Generator().manual_seed(0))
    with provider.tap() as records:
        program.forward(program.recipes(), x).sum().backward()
    names = {p.data_ptr(): name.partition(".")[0] for name, p in program.model.named_parameters()}
    seen = Counter((names[record.weight_ptr], record.product) for record in records)
    return seen, {name for name, p in program.model.named_parameters() if p.grad is not None}, x


def test_each_layer_runs_what_its_gradients_need() -> None:
    seen, grads, x = products(ReferenceProvider())
    backward = {("1", "wgrad"), ("2", "dgrad"), ("3", "dgrad"), ("3", "wgrad")}
    assert seen == Counter({(layer, "fprop") for layer in "0123"} | backward)
    assert grads == {"1.weight", "1.bias", "2.bias", "3.weight", "3.bias"}
    assert not x.requires_grad


def test_the_fault_leaves_the_frozen_layers_out() -> None:
    provider = ReferenceProvider()
    with FAULT.apply(provider):
        seen, grads, _ = products(provider)
    assert {layer for layer, _ in seen} == {"1", "3"}
    assert "2.bias" in grads
