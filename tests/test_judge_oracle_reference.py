"""Two implementations that share no code, the oracle and the reference system, on bit patterns that nobody chose."""

from __future__ import annotations

import pytest
import torch

from harness.fp8 import formats as reference_formats
from harness.fp8.quantizer import quantize as reference_quantize
from harness.fp8.recipe import make_recipe
from harness.judge.formats import FORMATS, decode
from harness.judge.oracle import quantize
from harness.types import Scalar, Spec

VARIANTS: list[tuple[str, dict[str, Scalar]]] = [
    ("delayed_scaling", {}),
    ("float8_current_scaling", {}),
    ("float8_current_scaling", {"power_2_scale": True}),
    ("float8_rowwise_scaling", {}),
    ("float8_rowwise_scaling", {"amax_epsilon": 1e-3}),
    ("float8_block_scaling", {}),
    ("float8_block_scaling", {"use_f32_scales": True}),
    ("mxfp8_block_scaling", {}),
    ("mxfp8_block_scaling", {"scale_rounding": "floor"}),
    ("nvfp4_block_scaling", {}),
    ("nvfp4_block_scaling", {"disable_2d_quantization": True}),
]
SCALE = 3.7109375  # of delayed scaling


def random_bits(dtype: torch.dtype, generator: torch.Generator, *, finite: bool) -> torch.Tensor:
    width = dtype.itemsize * 8
    integers = torch.randint(-(2 ** (width - 1)), 2 ** (width - 1) - 1, (128, 128), generator=generator)
    x = integers.to({16: torch.int16, 32: torch.int32}[width]).view(dtype)
    return torch.where(x.isfinite(), x, torch.zeros_like(x)) if finite else x


def samples(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    n = torch.randn(128, 128, generator=generator)
    zeros = n.clone()
    zeros[:64] = 0
    zeros[:, :32] = 0
    powers = torch.exp2(torch.randint(-14, 12, (128, 128), generator=generator).float())
    return {
        "finite bits": random_bits(dtype, generator, finite=True),
        "any bits": random_bits(dtype, generator, finite=False),
        "near the smallest normal": (n * 1e-38).to(dtype),
        "subnormal": (n * 1e-42).to(dtype),
        "huge": (n * 3e37).to(dtype).nan_to_num(),
        "zero blocks": zeros.to(dtype),
        "many octaves": (n * torch.exp(12 * torch.randn(128, 128, generator=generator))).to(dtype).nan_to_num(),
        "ties": (powers * torch.randint(1, 64, (128, 128), generator=generator) / 8).to(dtype),
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("role", ["input", "weight", "grad_output"])
@pytest.mark.parametrize(("name", "fields"), VARIANTS, ids=[f"{n}-{'-'.join(f) or 'default'}" for n, f in VARIANTS])
def test_codes_and_scales_agree(name: str, fields: dict[str, Scalar], role: str, dtype: torch.dtype) -> None:
    delayed = name == "delayed_scaling"
    for what, x in samples(dtype).items():
        mine = quantize(x, Spec(name, tuple(fields.items())), role, tensor_scale=SCALE if delayed else None)
        theirs = reference_quantize(x, role, make_recipe(name, fields), torch.tensor([SCALE]) if delayed else None)
        packed = theirs.format == "e2m1"
        codes = reference_formats.e2m1_unpack(theirs.data) if packed else theirs.data.view(torch.uint8)
        assert (mine.format, mine.block) == (theirs.format, theirs.block), what
        both_nan = decode(mine.codes, FORMATS[mine.format]).isnan() & decode(codes, FORMATS[mine.format]).isnan()
        assert bool(((mine.codes == codes) | both_nan).all()), what
        scale = theirs.scale.double()
        assert bool(((mine.scale == scale) | (mine.scale.isnan() & scale.isnan())).all()), what
