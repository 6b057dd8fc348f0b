"""Quantisation of one operand, always along its reduction axis.

Every operand comes in *reduction-last* orientation, a contiguous (rows, k) tensor of the module's dtype. Scale
arithmetic is float32, one correctly rounded operation at a time. Division never takes a Python scalar: torch turns
``c / tensor`` into a reciprocal and a product, and CUDA does so for ``tensor / c`` too, which rounds twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from harness.fp8 import formats
from harness.fp8.formats import ElementFormat
from harness.fp8.recipe import (
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    Float8RowwiseScaling,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
    Recipe,
)

INPUT, WEIGHT, GRAD_OUTPUT = "input", "weight", "grad_output"

# Recipes with float32 scales from the very tensor.
_SELF_SCALED = (Float8CurrentScaling, Float8RowwiseScaling, Float8BlockScaling)


@dataclass(frozen=True)
class Quantized:
    """A quantised operand.

    ``data``: float8 (rows, k), or uint8 (rows, k / 2) with two E2M1 codes a byte. ``scale``: decode scales, one per
    block: float32, float8_e8m0fnu (MXFP8) or float8_e4m3fn (NVFP4), shape (rows / block[0], k / block[1]); a per-tensor
    scale is (1, 1). ``global_scale``: NVFP4's decode scale of the tensor, float32, shape (1,).
    ``source``: the tensor that was quantised.
    """

    role: str
    format: str
    block: tuple[int, int]
    data: torch.Tensor
    scale: torch.Tensor
    source: torch.Tensor
    global_scale: torch.Tensor | None = None


def quantize(source: torch.Tensor, role: str, recipe: Recipe, scale: torch.Tensor | None = None) -> Quantized:
    """Quantise ``source`` (rows, k) for ``role`` as ``recipe`` says.

    ``scale`` is the encode scale (float32, one element) of delayed scaling, required there and ignored elsewhere.

    Raises:
        ValueError: delayed scaling without a scale, or a recipe that this system doesn't know.
    """
    if isinstance(recipe, DelayedScaling):
        if scale is None:
            raise ValueError("delayed scaling quantises with a scale of an earlier step, none was given")
        return _scaled(source, role, element_format(recipe, role), _whole(source), scale.reshape(1, 1))
    if isinstance(recipe, _SELF_SCALED):
        return _quantize_fp8(source, role, recipe)
    if isinstance(recipe, MXFP8BlockScaling):
        return _quantize_mxfp8(source, role, recipe)
    if isinstance(recipe, NVFP4BlockScaling):
        return _quantize_nvfp4(source, role, recipe)
    raise ValueError(f"no quantiser for recipe {recipe!r}")


def element_format(recipe: Recipe, role: str) -> ElementFormat:
    """The 8-bit format that ``recipe`` gives to ``role``.

    Raises:
        ValueError: the recipe has no 8-bit format.
    """
    if not isinstance(recipe, (DelayedScaling, *_SELF_SCALED, MXFP8BlockScaling)):
        raise ValueError(f"no 8-bit format in recipe {recipe!r}")
    return recipe.fp8_format.backward if role == GRAD_OUTPUT else recipe.fp8_format.forward


def block_shape(recipe: Recipe, role: str, source: torch.Tensor) -> tuple[int, int]:
    """Rows and columns of ``source`` that share one scale."""
    if isinstance(recipe, Float8RowwiseScaling):
        return (1, source.shape[1])
    if isinstance(recipe, Float8BlockScaling):
        return (128, 128) if role == WEIGHT else (1, 128)
    if isinstance(recipe, MXFP8BlockScaling):
        return (1, 32)
    if isinstance(recipe, NVFP4BlockScaling):
        return (16, 16) if role == WEIGHT and not recipe.disable_2d_quantization else (1, 16)
    return _whole(source)


def encode_scale(amax: torch.Tensor, fp8_max: float, *, epsilon: float, power_of_2: bool) -> torch.Tensor:
    """s = fp8_max / max(amax, epsilon), float32, same shape as ``amax``.

    1 where amax is zero or not finite; float32's maximum where the quotient overflows; rounded down to a power of two
    if asked. Source: Transformer Engine's ``compute_scale_from_amax`` (per tensor), applied to each block.
    """
    divisor = amax if epsilon == 0.0 else torch.maximum(amax, torch.full_like(amax, epsilon))
    scale = torch.full_like(amax, fp8_max) / divisor
    scale = torch.where(scale.isinf(), torch.full_like(scale, formats.FP32_MAX), scale)
    if power_of_2:
        scale = formats.floor_power_of_two(scale)
    return torch.where((amax == 0) | ~amax.isfinite(), torch.ones_like(scale), scale)


def block_amax(source: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """Largest magnitude of each block, float32, shape (rows / block[0], k / block[1]); NaN wins. Exact blocks only."""
    rows, k = source.shape
    blocks = source.abs().reshape(rows // block[0], block[0], k // block[1], block[1])
    return blocks.amax(dim=(1, 3)).to(torch.float32)


def expand_blocks(per_block: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """Each block's value at each of its elements: (r, c) to (r * block[0], c * block[1])."""
    return per_block.repeat_interleave(block[0], dim=0).repeat_interleave(block[1], dim=1)


def decode_scale(scale: torch.Tensor) -> torch.Tensor:
    """1 / s in float32."""
    return torch.ones_like(scale) / scale


def _whole(source: torch.Tensor) -> tuple[int, int]:
    return (source.shape[0], source.shape[1])


def _quantize_fp8(
    source: torch.Tensor, role: str, recipe: Float8CurrentScaling | Float8RowwiseScaling | Float8BlockScaling
) -> Quantized:
    """Current, rowwise and block scaling: one float32 scale per block, the block's shape is all that differs."""
    target = element_format(recipe, role)
    block = block_shape(recipe, role, source)
    power_of_2 = not recipe.use_f32_scales if isinstance(recipe, Float8BlockScaling) else recipe.power_2_scale
    amax = block_amax(source, block)
    scale = encode_scale(amax, target.max, epsilon=recipe.amax_epsilon, power_of_2=power_of_2)
    return _scaled(source, role, target, block, scale)


def _scaled(
    source: torch.Tensor, role: str, target: ElementFormat, block: tuple[int, int], scale: torch.Tensor
) -> Quantized:
    scaled = source.to(torch.float32) * expand_blocks(scale, block)
    data = formats.cast_saturating(scaled, target)
    return Quantized(role, target.name, block, data, decode_scale(scale), source)


def _quantize_mxfp8(source: torch.Tensor, role: str, recipe: MXFP8BlockScaling) -> Quantized:
    target = element_format(recipe, role)
    block = block_shape(recipe, role, source)
    amax = block_amax(source, block)
    if recipe.scale_rounding == "ceil":
        exponent = formats.e8m0_ceil(amax / torch.full_like(amax, target.max))
    else:
        exponent = formats.e8m0_floor(amax, target.emax)
    scaled = source.to(torch.float32) * expand_blocks(formats.exp2_exact(-exponent), block)
    data = formats.cast_saturating(scaled, target)
    return Quantized(role, target.name, block, data, formats.e8m0_tensor(exponent), source)


def _quantize_nvfp4(source: torch.Tensor, role: str, recipe: NVFP4BlockScaling) -> Quantized:
    """Two levels: S = 448 * 6 / amax of the tensor, then an E4M3 scale per block (arXiv:2509.25149, appendix C)."""
    block = block_shape(recipe, role, source)
    amax = block_amax(source, block)
    whole = encode_scale(amax.amax().reshape(1), formats.E4M3.max * formats.E2M1_MAX, epsilon=0.0, power_of_2=False)
    block_scale = formats.cast_saturating((amax / torch.full_like(amax, formats.E2M1_MAX)) * whole, formats.E4M3)
    decoded = block_scale.to(torch.float32)
    encode = whole / decoded
    encode = torch.where(encode.isinf(), torch.full_like(encode, formats.FP32_MAX), encode)
    encode = torch.where(decoded == 0, torch.zeros_like(encode), encode)
    codes = formats.e2m1_encode(source.to(torch.float32) * expand_blocks(encode, block))
    codes = torch.where(expand_blocks(decoded, block) == 0, torch.zeros_like(codes), codes)
    return Quantized(role, "e2m1", block, formats.e2m1_pack(codes), block_scale, source, decode_scale(whole))
