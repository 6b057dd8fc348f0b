from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn.utils import parametrize

from harness.observe.derived import attributed, derived_weights, stand_in
from harness.observe.run import layers_of
from harness.program import Expects, Program
from harness.providers.protocol import Operand, TapRecord


class Twice(torch.nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * 2


class Rows(torch.nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight[:2]


def program_of(*parametrizations: torch.nn.Module | None) -> Program:
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4, bias=False) for _ in parametrizations)
    for layer, made in zip(layers, parametrizations, strict=True):
        if made is not None:
            parametrize.register_parametrization(layer, "weight", made, unsafe=True)
    return Program(layers, lambda x: x, tuple, lambda generator: (), Expects())


def record(product: str, weight: torch.Tensor, pointer: int) -> TapRecord:
    source = weight if product == "fprop" else weight.t()
    operand = Operand("weight", "e4m3", (4, 4), source, torch.empty(0), torch.empty(0))
    return TapRecord("r", product, "forward", operand, operand, torch.empty(0), pointer)


def test_only_weights_that_lie_nowhere_else_are_derived() -> None:
    program = program_of(None, Twice(), Rows())
    assert list(derived_weights(program)) == ["1"]
    assert sorted(layers_of(program).values()) == ["0", "1", "2"]
    assert layers_of(program)[stand_in(0)] == "1"


def test_products_of_a_derived_weight_are_known_by_its_values_step_by_step() -> None:
    weights = {"a": torch.ones(4, 4), "b": torch.zeros(4, 4)}
    a, b, other = (torch.full((4, 4), value) for value in (1.0, 0.0, 7.0))
    records = [record("fprop", a, 10), record("wgrad", a, 10), record("fprop", b, 10), record("fprop", other, 11)]
    told = attributed(records, (0, 0, 1, 1), weights)
    # The allocator gave step 1's weight the address of step 0's.
    assert [one.weight_ptr for one in told] == [stand_in(0), stand_in(0), stand_in(1), 11]
    assert attributed(records, (0, 0, 1, 1), {}) == tuple(records)
    assert replace(told[0], weight_ptr=10) == records[0]
