"""Scales and bytes of every recipe against values worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from harness import fp8
from harness.fp8 import formats
from harness.fp8.quantizer import GRAD_OUTPUT, INPUT, WEIGHT, element_format, quantize
from harness.fp8.recipe import Recipe

FP32_MAX = torch.finfo(torch.float32).max


def filled(rows: int, columns: int, value: float = 1.0) -> torch.Tensor:
    return torch.full((rows, columns), value, dtype=torch.float32)


def decoded(data: torch.Tensor) -> torch.Tensor:
    return data.to(torch.float32)


def test_current_scaling_by_hand() -> None:
    source = filled(16, 16)
    source[3, 5] = -7.0
    quantized = quantize(source, INPUT, fp8.Float8CurrentScaling())
    assert quantized.block == (16, 16)
    assert quantized.data.dtype == torch.float8_e4m3fn
    assert quantized.scale.tolist() == [[1 / 64]]  # 448 / 7 = 64
    assert decoded(quantized.data)[3, 5].item() == -448.0
    assert decoded(quantized.data)[0, 0].item() == 64.0


def test_current_scaling_rounds_each_step_once() -> None:
    source = filled(16, 16, 0.3)
    amax = torch.tensor(0.3, dtype=torch.float32)
    scale = torch.tensor(448.0) / amax
    quantized = quantize(source, INPUT, fp8.Float8CurrentScaling())
    assert quantized.scale.item() == (torch.tensor(1.0) / scale).item()


@pytest.mark.parametrize(
    ("role", "dtype", "largest"),
    [
        (INPUT, torch.float8_e4m3fn, 448.0),
        (WEIGHT, torch.float8_e4m3fn, 448.0),
        (GRAD_OUTPUT, torch.float8_e5m2, 57344.0),
    ],
)
def test_hybrid_gives_gradients_e5m2(role: str, dtype: torch.dtype, largest: float) -> None:
    quantized = quantize(filled(16, 16), role, fp8.Float8CurrentScaling())
    assert quantized.data.dtype == dtype
    assert decoded(quantized.data)[0, 0].item() == largest
    e4m3 = quantize(filled(16, 16), role, fp8.Float8CurrentScaling(fp8_format=fp8.Format.E4M3))
    assert e4m3.data.dtype == torch.float8_e4m3fn


@pytest.mark.parametrize(
    ("amax", "decode"),
    [(0.0, 1.0), (math.inf, 1.0), (math.nan, 1.0), (1e-40, 1.0 / FP32_MAX)],
    ids=["zero", "inf", "nan", "overflow"],
)
def test_scale_of_degenerate_amaxes(amax: float, decode: float) -> None:
    source = torch.zeros(16, 16)
    source[0, 0] = amax
    quantized = quantize(source, INPUT, fp8.Float8CurrentScaling())
    assert quantized.scale.item() == pytest.approx(decode, rel=1e-6)
    if not math.isnan(amax):
        assert decoded(quantized.data).isfinite().all()
    else:
        assert decoded(quantized.data).isnan().sum() == 1


def test_power_of_two_scales_round_down() -> None:
    quantized = quantize(filled(16, 16, 3.0), INPUT, fp8.Float8CurrentScaling(power_2_scale=True))
    assert quantized.scale.item() == 1 / 128  # 448 / 3 = 149.3 -> 128
    assert decoded(quantized.data)[0, 0].item() == 384.0


def test_amax_epsilon_bounds_the_scale_but_an_all_zero_tensor_has_scale_one() -> None:
    recipe = fp8.Float8CurrentScaling(amax_epsilon=7.0)
    assert quantize(filled(16, 16, 1.0), INPUT, recipe).scale.item() == 1 / 64
    assert quantize(filled(16, 16, 14.0), INPUT, recipe).scale.item() == 1 / 32
    assert quantize(filled(16, 16, 0.0), INPUT, recipe).scale.item() == 1.0


def test_rowwise_by_hand() -> None:
    source = filled(16, 32)
    source[2] = 7.0
    quantized = quantize(source, INPUT, fp8.Float8RowwiseScaling())
    assert quantized.block == (1, 32)
    assert quantized.scale.shape == (16, 1)
    assert quantized.scale[2].item() == 1 / 64
    assert quantized.scale[0].item() == (torch.tensor(1.0) / 448.0).item()
    assert (decoded(quantized.data) == 448.0).all()


def test_rowwise_a_zero_row_stays_finite() -> None:
    source = filled(16, 32)
    source[4] = 0.0
    quantized = quantize(source, INPUT, fp8.Float8RowwiseScaling())
    assert quantized.scale[4].item() == 1.0
    assert (decoded(quantized.data)[4] == 0).all()


@pytest.mark.parametrize(
    ("role", "block", "shape"),
    [(INPUT, (1, 128), (128, 2)), (GRAD_OUTPUT, (1, 128), (128, 2)), (WEIGHT, (128, 128), (1, 2))],
)
def test_block_scaling_by_hand(role: str, block: tuple[int, int], shape: tuple[int, int]) -> None:
    source = filled(128, 256)
    source[0, 128:] = 3.0
    quantized = quantize(source, role, fp8.Float8BlockScaling())
    assert quantized.block == block
    assert quantized.scale.shape == shape
    assert quantized.scale[0].tolist() == [1 / 256, 1 / 128]  # 448 and 448 / 3, rounded down to powers of two
    assert quantized.data.dtype == torch.float8_e4m3fn
    exact = quantize(source, role, fp8.Float8BlockScaling(use_f32_scales=True))
    assert exact.scale[0, 1].item() == (torch.tensor(1.0) / (torch.tensor(448.0) / torch.tensor(3.0))).item()


@pytest.mark.parametrize(
    ("rounding", "amax", "exponent", "code"),
    [
        ("ceil", 448.0, 0, 448.0),
        ("ceil", 449.0, 1, 224.0),
        ("ceil", 1.0, -8, 256.0),
        ("ceil", 1.75, -8, 448.0),
        ("floor", 1.0, -8, 256.0),
        ("floor", 1.9, -8, 448.0),  # 1.9 * 256 = 486 saturates
    ],
)
def test_mxfp8_by_hand(rounding: str, amax: float, exponent: int, code: float) -> None:
    source = torch.zeros(32, 64)
    source[1, 40] = amax
    quantized = quantize(source, INPUT, fp8.MXFP8BlockScaling(scale_rounding=rounding))
    assert quantized.block == (1, 32)
    assert quantized.scale.dtype == torch.float8_e8m0fnu
    scales = quantized.scale.to(torch.float32)
    assert scales.shape == (32, 2)
    assert scales[1, 1].item() == 2.0**exponent
    assert scales[0, 0].item() == 2.0**-127  # an all-zero block
    assert decoded(quantized.data)[1, 40].item() == code
    assert decoded(quantized.data).isfinite().all()


def test_nvfp4_by_hand() -> None:
    source = torch.zeros(16, 32)
    source[0, 0] = 6.0
    source[0, 1] = 2.5
    source[0, 16] = 3.0
    quantized = quantize(source, INPUT, fp8.NVFP4BlockScaling())
    # S = 2688 / 6 = 448; block scales 6 / 6 * 448 = 448 and 3 / 6 * 448 = 224, both exact in E4M3.
    assert quantized.block == (1, 16)
    assert quantized.global_scale is not None
    assert quantized.global_scale.item() == (torch.tensor(1.0) / 448.0).item()
    scales = quantized.scale.to(torch.float32)
    assert scales.shape == (16, 2)
    assert scales[0].tolist() == [448.0, 224.0]
    assert scales[1].tolist() == [0.0, 0.0]
    codes = formats.e2m1_unpack(quantized.data)
    assert codes.shape == (16, 32)
    assert codes[0, :2].tolist() == [7, 4]  # 6 -> 6; 2.5 is halfway between 2 and 3: even code, 2
    assert codes[0, 16].item() == 7  # 3 * (448 / 224) = 6
    assert codes[1:].sum() == 0


def test_nvfp4_weight_blocks_are_square_unless_disabled() -> None:
    source = filled(32, 32)
    assert quantize(source, WEIGHT, fp8.NVFP4BlockScaling()).scale.shape == (2, 2)
    assert quantize(source, WEIGHT, fp8.NVFP4BlockScaling(disable_2d_quantization=True)).scale.shape == (32, 2)
    assert quantize(source, INPUT, fp8.NVFP4BlockScaling()).scale.shape == (32, 2)


def test_delayed_scaling_uses_the_scale_it_is_given_and_saturates() -> None:
    source = filled(16, 16, 2.0)
    source[0, 0] = 1000.0
    quantized = quantize(source, INPUT, fp8.DelayedScaling(), torch.tensor([4.0]))
    assert quantized.scale.tolist() == [[0.25]]
    assert decoded(quantized.data)[1, 1].item() == 8.0
    assert decoded(quantized.data)[0, 0].item() == 448.0


def test_delayed_scaling_without_a_scale_is_refused() -> None:
    with pytest.raises(ValueError, match="scale of an earlier step"):
        quantize(filled(16, 16), INPUT, fp8.DelayedScaling())


def test_an_unknown_recipe_is_refused() -> None:
    with pytest.raises(ValueError, match="no quantiser"):
        quantize(filled(16, 16), INPUT, Recipe())
    with pytest.raises(ValueError, match="no 8-bit format"):
        element_format(fp8.NVFP4BlockScaling(), INPUT)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_every_module_dtype_is_taken_to_float32_first(dtype: torch.dtype) -> None:
    source = torch.linspace(-3, 5, 256).reshape(16, 16).to(dtype)
    quantized = quantize(source, INPUT, fp8.Float8CurrentScaling())
    same = quantize(source.to(torch.float32), INPUT, fp8.Float8CurrentScaling())
    assert torch.equal(quantized.data.view(torch.uint8), same.data.view(torch.uint8))
    assert torch.equal(quantized.scale, same.scale)
