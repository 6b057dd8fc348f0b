"""Broken variants of the stub library, one defect each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from harness.providers.protocol import Operand
from harness.types import Spec
from tests.support.judge_stub import Quantised, StubProvider, decode_e8


class ScaleTimes2(StubProvider):
    """Encodes with a scale that is too large, consistently: the largest values saturate."""

    factor = 2.0

    def encode_scale(self, amax: torch.Tensor, top: float) -> torch.Tensor:
        return super().encode_scale(amax, top) * self.factor


class ScaleTimes8(ScaleTimes2):
    factor = 8.0


class ScaleWasted64(ScaleTimes2):
    factor = 1 / 64


class RoundTowardZero(StubProvider):
    def cast(self, x: torch.Tensor, fmt: str) -> torch.Tensor:
        codes = super().cast(x, fmt)
        return codes - (decode_e8(codes, fmt).abs() > x.abs()).to(torch.uint8)


class E5M2ForE4M3(StubProvider):
    def format_of(self, recipe: Spec, role: str) -> str:
        return "e5m2"


class RowScaleAsColumnScale(StubProvider):
    """Keeps the input's forward scales, one per row of x, for x^T, whose rows are x's columns (M = K only)."""

    def wgrad(self, layer: Any, recipe: Spec, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        self.forward_scale = self.quantise(x, recipe, "input").operand.scale
        return super().wgrad(layer, recipe, g, x)

    def finish(self, operand: Operand) -> Quantised:
        scale = getattr(self, "forward_scale", None)
        if scale is not None and operand.role == "input" and scale.shape == operand.scale.shape:
            del self.forward_scale
            return super().finish(replace(operand, scale=scale))
        return super().finish(operand)


class BlockScalesShifted(StubProvider):
    def finish(self, operand: Operand) -> Quantised:
        return super().finish(replace(operand, scale=operand.scale.roll(1, -1)))


class LastBlockDropped(StubProvider):
    def multiply(self, a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return super().multiply(a[:, :-32], b[:, :-32], dtype)


class TransposedOperand(StubProvider):
    def multiply(self, a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return super().multiply(a, b.t() if b.shape[0] == b.shape[1] else b, dtype)


class AccumulatesInBf16(StubProvider):
    def multiply(self, a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.bfloat16)
        for k in range(0, a.shape[1], 32):
            total = (total.float() + a[:, k : k + 32] @ b[:, k : k + 32].t()).bfloat16()
        return total.to(dtype)


class PlanOnly(StubProvider):
    """Layer 1 computes in high precision; the tap reports the FP8 product that should have been."""

    products: tuple[str, ...] = ("fprop", "dgrad", "wgrad")

    def product(self, layer: Any, name: str, recipe: Spec, a: Any, b: Any) -> torch.Tensor:
        out = super().product(layer, name, recipe, a, b)
        if layer.index != 1 or name not in self.products:
            return out
        return (a[0].float() @ b[0].float().t()).to(out.dtype)


class PlanOnlyForward(PlanOnly):
    products = ("fprop",)


class PlanOnlyDgrad(PlanOnly):
    products = ("dgrad",)


class PlanOnlyWgrad(PlanOnly):
    products = ("wgrad",)


class OneLayerInBf16(StubProvider):
    """Layer 1 runs in high precision and its tap says nothing."""

    def recipe_for(self, layer: int) -> Spec | None:
        return None if layer == 1 else super().recipe_for(layer)


class EverythingInBf16(StubProvider):
    def recipe_for(self, layer: int) -> Spec | None:
        return None


class Fp8EverywhereElse(StubProvider):
    """A disabled region that does not switch FP8 off."""

    def recipe_for(self, layer: int) -> Spec | None:
        return self.regions[0] if self.regions else None


class OuterRecipeInside(Fp8EverywhereElse):
    pass


class GradientTwice(StubProvider):
    def dgrad(self, *args: Any) -> torch.Tensor:
        return 2 * super().dgrad(*args)


class WeightGradientTwice(StubProvider):
    def wgrad(self, *args: Any) -> torch.Tensor:
        return 2 * super().wgrad(*args)


class WeightGradientTransposed(StubProvider):
    def wgrad(self, *args: Any) -> torch.Tensor:
        return super().wgrad(*args).t().contiguous()


class BiasLost(StubProvider):
    def add_bias(self, layer: int, y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return y + 0 * bias


class NanInOutput(StubProvider):
    def add_bias(self, layer: int, y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        y = y + bias
        y.data[5, 7] = float("nan")
        return y


class NanInWeightGradient(StubProvider):
    def wgrad(self, *args: Any) -> torch.Tensor:
        dw = super().wgrad(*args)
        dw[3, 2] = float("nan")
        return dw


class WeightGradientRowZero(StubProvider):
    """One row of blocks of a weight gradient never arrives."""

    def wgrad(self, *args: Any) -> torch.Tensor:
        dw = super().wgrad(*args)
        dw[16:32] = 0
        return dw


class ProductMissing(StubProvider):
    """The tap misses the last record."""

    def wgrad(self, layer: Any, *args: Any) -> torch.Tensor:
        dw = super().wgrad(layer, *args)
        if layer.index == 0:
            self.records.pop()
        return dw


class ProductTwice(StubProvider):
    def dgrad(self, layer: Any, *args: Any) -> torch.Tensor:
        dx = super().dgrad(layer, *args)
        self.records.append(self.records[-1])
        return dx


class OtherInputInTap(StubProvider):
    """The tap reports a source that differs from the batch's input in one bit of one element."""

    def fprop(self, layer: Any, *args: Any) -> torch.Tensor:
        y = super().fprop(layer, *args)
        if layer.index == 0:
            source = self.records[-1].a.source
            source[0, 0] = torch.nextafter(source[0, 0], torch.tensor(9.0, dtype=source.dtype))
        return y


class ReportsWrongScale(StubProvider):
    """Computes correctly and reports a decode scale twice as large."""

    def product(self, *args: Any) -> torch.Tensor:
        out = super().product(*args)
        record = self.records[-1]
        self.records[-1] = replace(record, a=replace(record.a, scale=record.a.scale * 2))
        return out
