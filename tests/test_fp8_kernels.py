"""Products against the float64 product of the very operands, and the scale layouts of CUDA kernels on the CPU."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from harness import fp8
from harness.fp8 import kernels
from harness.fp8.kernels import cpu, cuda, dequantized, layouts
from harness.fp8.quantizer import GRAD_OUTPUT, INPUT, WEIGHT, Quantized, quantize
from harness.fp8.recipe import RECIPE_CLASSES, Recipe

KERNELS = {
    "float8_rowwise_scaling": "rowwise",
    "float8_block_scaling": "block",
    "mxfp8_block_scaling": "mxfp8",
    "nvfp4_block_scaling": "nvfp4",
}


def operands(
    recipe: Recipe, role_a: str, rows: int = 256, k: int = 384, columns: int = 128
) -> tuple[Quantized, Quantized]:
    torch.manual_seed(0)
    scale = torch.tensor([2.0]) if recipe.delayed() else None
    a = quantize(torch.randn(rows, k), role_a, recipe, scale)
    b = quantize(torch.randn(columns, k), WEIGHT, recipe, scale)
    return a, b


def run(recipe: Recipe, a: Quantized, b: Quantized, out_dtype: torch.dtype) -> torch.Tensor:
    extra = () if a.global_scale is None else (a.global_scale, b.global_scale)
    return getattr(kernels, KERNELS.get(recipe.name, "tensorwise"))(a.data, b.data, a.scale, b.scale, *extra, out_dtype)  # type: ignore[no-any-return]


def exact(a: Quantized, b: Quantized) -> tuple[torch.Tensor, torch.Tensor]:
    """The float64 product and, componentwise, the product of magnitudes."""
    if a.global_scale is not None and b.global_scale is not None:
        unpacked = [dequantized.formats.e2m1_decode(dequantized.formats.e2m1_unpack(o.data)) for o in (a, b)]
        left, right = (dequantized._scaled(v, o.scale) for v, o in zip(unpacked, (a, b), strict=True))
        left, right = left * a.global_scale.double(), right * b.global_scale.double()
    else:
        left, right = dequantized.dequantize(a.data, a.scale), dequantized.dequantize(b.data, b.scale)
    return left @ right.t(), left.abs() @ right.abs().t()


@pytest.mark.parametrize("name", sorted(RECIPE_CLASSES))
@pytest.mark.parametrize("role_a", [INPUT, GRAD_OUTPUT])
@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_products_on_the_cpu(name: str, role_a: str, out_dtype: torch.dtype) -> None:
    recipe = RECIPE_CLASSES[name]()
    a, b = operands(recipe, role_a)
    out = run(recipe, a, b, out_dtype)
    reference, magnitude = exact(a, b)
    assert out.shape == reference.shape
    assert out.dtype == out_dtype
    # float32 accumulation over K = 384 in any order, two roundings of the operands, one of the output.
    bound = (384 + 4) * 2.0**-24 * magnitude + torch.finfo(out_dtype).eps * reference.abs()
    assert ((out.double() - reference).abs() <= bound).all()


def test_the_cpu_test_would_see_a_wrong_scale() -> None:
    a, b = operands(fp8.Float8BlockScaling(), INPUT)
    wrong = cpu.block(a.data, b.data, a.scale.roll(1, dims=1), b.scale, torch.float32)
    reference, magnitude = exact(a, b)
    assert ((wrong.double() - reference).abs() > 388 * 2.0**-24 * magnitude).any()


@pytest.mark.parametrize("one_dimensional", [True, False])
def test_block_product_takes_both_kinds_of_b(one_dimensional: bool) -> None:
    recipe = fp8.Float8BlockScaling()
    torch.manual_seed(0)
    a = quantize(torch.randn(128, 256), INPUT, recipe)
    b = quantize(torch.randn(256, 256), INPUT if one_dimensional else WEIGHT, recipe)
    reference, magnitude = exact(a, b)
    out = kernels.block(a.data, b.data, a.scale, b.scale, torch.float32)
    assert ((out.double() - reference).abs() <= 260 * 2.0**-24 * magnitude).all()


def test_the_fallback_for_torch_without_row_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands(fp8.Float8RowwiseScaling(), INPUT, 32, 64, 16)
    monkeypatch.setattr(cpu.torch_compat, "cpu_scales_rows", lambda: False)
    out = cpu.rowwise(a.data, b.data, a.scale, b.scale, torch.float32)
    reference, magnitude = exact(a, b)
    assert ((out.double() - reference).abs() <= 70 * 2.0**-24 * magnitude).all()


def test_emulation_ignores_the_float32_matmul_precision() -> None:
    a, b = operands(fp8.MXFP8BlockScaling(), INPUT)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        low = run(fp8.MXFP8BlockScaling(), a, b, torch.float32)
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(low, run(fp8.MXFP8BlockScaling(), a, b, torch.float32))


def test_outer_major_scales() -> None:
    scale = torch.arange(12.0).reshape(4, 3)
    laid = layouts.outer_major(scale)
    assert torch.equal(laid, scale)
    assert laid.stride() == (1, 4)
    assert layouts.outer_major(torch.ones(4, 1)).stride(0) == 1


@pytest.mark.parametrize(("k_blocks", "padded"), [(1, 4), (4, 4), (5, 8)])
def test_block_128x128_scales_pad_k_to_a_multiple_of_four(k_blocks: int, padded: int) -> None:
    scale = torch.arange(2.0 * k_blocks).reshape(2, k_blocks) + 1
    laid = layouts.block_128x128(scale)
    assert laid.shape == (padded, 2)
    assert laid.stride() == (1, padded)
    assert torch.equal(laid[:k_blocks], scale.t())
    assert (laid[k_blocks:] == 0).all()


@pytest.mark.parametrize(("rows", "k"), [(128, 4), (16, 1), (130, 7), (256, 8), (512, 12)])
@pytest.mark.parametrize("dtype", [torch.float8_e8m0fnu, torch.float8_e4m3fn])
def test_unswizzle_undoes_swizzle(rows: int, k: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    scale = torch.randint(0, 120, (rows, k), dtype=torch.uint8).view(dtype)
    flat = layouts.swizzle_32_4_4(scale)
    assert flat.dtype == dtype
    assert flat.is_contiguous()
    assert flat.shape == (layouts.ceil_to(rows, 128) * layouts.ceil_to(k, 4),)
    back = layouts.unswizzle_32_4_4(flat, rows, k)
    assert torch.equal(back.view(torch.uint8), scale.view(torch.uint8))


def test_swizzle_places_each_scale_where_cublaslt_reads_it() -> None:
    rows, k = 256, 8
    scale = (torch.arange(rows * k) % 251).to(torch.uint8).reshape(rows, k)
    flat = layouts.swizzle_32_4_4(scale.view(torch.float8_e8m0fnu)).view(torch.uint8)
    for row, column in [(0, 0), (1, 0), (31, 3), (32, 0), (127, 3), (128, 0), (200, 5), (255, 7)]:
        tile = (row // 128) * (k // 4) + column // 4
        offset = tile * 512 + (row % 32) * 16 + (row % 128 // 32) * 4 + column % 4
        assert flat[offset] == scale[row, column]


def test_expand_rows_repeats_square_blocks() -> None:
    scale = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).to(torch.float8_e4m3fn)
    assert layouts.expand_rows(scale, 4).float().tolist() == [[1, 2], [1, 2], [3, 4], [3, 4]]
    assert layouts.expand_rows(scale, 2) is scale


@pytest.mark.parametrize("role_b", [WEIGHT, INPUT])
@pytest.mark.parametrize("name", sorted(RECIPE_CLASSES))
def test_the_calls_of_cuda_kernels_pass_torchs_shape_inference(name: str, role_b: str) -> None:
    """Names, order and kinds of the arguments, without a GPU: on the meta device. Values need a GPU (test_fp8_cuda)."""
    recipe = RECIPE_CLASSES[name]()
    scale = torch.tensor([2.0]) if recipe.delayed() else None
    a, b = (quantize(torch.randn(rows, 128), role, recipe, scale) for rows, role in ((128, INPUT), (256, role_b)))
    whole = () if a.global_scale is None else (a.global_scale, b.global_scale)
    meta = [tensor.to("meta") for tensor in (a.data, b.data, a.scale, b.scale, *whole)]  # type: ignore[union-attr]
    out = getattr(cuda, KERNELS.get(name, "tensorwise"))(*meta, torch.bfloat16)
    assert out.shape == (128, 256)
    assert out.dtype == torch.bfloat16


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_the_triton_kernel_compiles_for_hopper() -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from harness.fp8.kernels.triton_mx import scaled_dot_kernel

    constants = {"format_a": "e5m2", "format_b": "e4m3", "block_m": 64, "block_n": 64, "block_k": 128}
    pointers = dict.fromkeys(("a_ptr", "b_ptr", "scale_a_ptr", "scale_b_ptr"), "*u8") | {"out_ptr": "*bf16"}
    signature = pointers | dict.fromkeys(("rows", "columns", "k"), "i32") | dict.fromkeys(constants, "constexpr")
    source = ASTSource(scaled_dot_kernel, signature=signature, constexprs=constants)
    assert "wgmma" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
