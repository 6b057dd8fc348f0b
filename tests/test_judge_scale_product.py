"""harness.judge.scale_product: as much as a kernel loses that multiplies two decode scales first, and no more."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from harness.data import draw
from harness.faults.patching import patched
from harness.fp8.kernels import cpu
from harness.judge.oracle import OracleOperand, quantize
from harness.judge.scale_product import scale_product_bound
from harness.run.execute import execute_cell
from harness.types import Axes, Cell, Spec, Verdict


def operands(recipe: str, factor: float, kind: str = "positive") -> tuple[OracleOperand, OracleOperand]:
    """An input times ``factor`` and a gradient: what a weight's gradient is the product of."""
    generator = torch.Generator().manual_seed(0)
    x, grad = (draw(kind, (128, 256), generator, torch.bfloat16) for _ in range(2))
    return quantize(grad, Spec(recipe), "grad_output"), quantize(x * factor, Spec(recipe), "input")


def test_the_bound_is_what_one_product_of_two_scales_may_lose() -> None:
    g, x = operands("float8_current_scaling", 2.0**-124)
    exact = g.values @ x.values.t()
    product = g.scale * x.scale
    lost = exact * (product.float().double() / product) - exact
    bound = scale_product_bound(g, x)
    assert bound is not None
    assert 0 < float((lost.abs() / bound).max()) <= 1
    # Half a step of 2^-149 that the product has few of: a coarse scale, yet not a licence.
    assert float((bound / exact.abs()).max()) < 2.0**-7


@pytest.mark.parametrize("recipe", ["float8_current_scaling", "float8_block_scaling", "nvfp4_block_scaling"])
def test_ordinary_scales_lose_nothing(recipe: str) -> None:
    assert scale_product_bound(*operands(recipe, 1.0)) is None
    assert scale_product_bound(*operands(recipe, 2.0**-60)) is None


def test_a_block_of_zeros_with_the_smallest_scale_widens_no_bound() -> None:
    g, x = operands("mxfp8_block_scaling", 1.0)
    x.codes[:, :32] = 0
    x.scale[:, 0] = 2.0**-127
    bound = scale_product_bound(g, x)
    assert bound is not None
    assert float((bound / (g.values.abs() @ x.values.abs().t())).max()) < 2.0**-100


def test_scales_of_zero_scale_nothing() -> None:
    g, x = operands("float8_current_scaling", 1.0)
    x.scale.zero_()
    assert scale_product_bound(g, x) is None


def edge(**changes: Any) -> Cell:
    recipe = Spec("float8_current_scaling")
    axes = Axes("amax_edges", Spec("reference"), recipe, variant="scale_overflow", data="positive", **changes)
    return Cell("edge", axes, inner=None)


def as_cublas(rowwise: Any, error: float = 0.0) -> Any:
    """The scales' float32 product in place of both, off by the part ``error``."""

    def product(
        a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
    ) -> Any:
        scale = scale_a * scale_b[:1] * (1 + error)  # one scale each: all rows are alike
        return rowwise(a, b, scale, torch.ones_like(scale_b), out_dtype)

    return product


@pytest.mark.parametrize(("error", "verdict"), [(0.0, Verdict.PASS), (2.0**-5, Verdict.FAIL)])
def test_a_kernel_that_multiplies_the_scales_first_is_right_and_one_that_is_wrong_is_red(
    error: float, verdict: Verdict
) -> None:
    with patched(cpu, "rowwise", as_cublas(cpu.rowwise, error)):
        result = execute_cell(edge())
    assert result.verdict is verdict, result.findings
    if verdict is Verdict.FAIL:
        assert "numerics.kernel" in {finding.check for finding in result.findings}
