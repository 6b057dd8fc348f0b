"""harness.faults.quantising: what a fault of the quantiser gets, and that it is mended."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from harness.faults.quantising import Asked, Quantise, quantise_fault, quantiser_fault, requantised
from harness.fp8 import ops
from harness.fp8.quantizer import INPUT, Quantized
from harness.fp8.recipe import Float8CurrentScaling, NVFP4BlockScaling

X = torch.randn(32, 32, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)


def quantized(*arguments: Any) -> Quantized:
    given: Quantized = ops.quantize(*arguments)  # type: ignore[attr-defined]
    return given


def test_what_is_asked_for_can_be_changed_in_every_format() -> None:
    asked_for: list[Asked] = []

    def transposed(asked: Asked, quantise: Quantise) -> Quantized:
        asked_for.append(asked)
        return quantise(dataclasses.replace(asked, source=asked.source.t().contiguous()))

    provider: Any = None
    with quantise_fault(transposed)(provider):
        for recipe in (Float8CurrentScaling(), NVFP4BlockScaling()):
            assert torch.equal(quantized(X, INPUT, recipe).source, X.t())
    assert [(asked.role, asked.scale) for asked in asked_for] == [(INPUT, None)] * 2
    assert torch.equal(quantized(X, INPUT, Float8CurrentScaling()).source, X)


def test_memory_is_cleared_before_and_after_also_when_nothing_was_quantised() -> None:
    memory = {"stale": 1}
    provider: Any = None
    with quantise_fault(lambda asked, quantise: quantise(asked), clear=memory.clear)(provider):
        assert memory == {}
        memory["kept"] = 2
    assert memory == {}


def test_eight_bit_operands_alone_are_given_to_a_fault_of_codes() -> None:
    seen: list[str] = []

    def look(given: Quantized) -> Quantized:
        seen.append(given.format)
        return given

    provider: Any = None
    with quantiser_fault(look)(provider):
        quantized(X, INPUT, NVFP4BlockScaling())
        quantized(X, INPUT, Float8CurrentScaling())
    assert seen == ["e4m3"]


def test_requantised_with_its_own_scale_is_the_same() -> None:
    given = quantized(X, INPUT, Float8CurrentScaling())
    again = requantised(given, 1 / given.scale, given.scale)
    assert int((again.data.view(torch.uint8) != given.data.view(torch.uint8)).sum()) <= 2  # 1 / (1 / s) is rounded
    wrong = requantised(given, 2 / given.scale, given.scale)
    assert not torch.equal(wrong.data.view(torch.uint8), given.data.view(torch.uint8))
