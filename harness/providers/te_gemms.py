"""Which kernels of a profiled step were FP8 GEMMs, by what the profiler shows: the names of GPU kernels.

Transformer Engine launches its GEMMs from its own C++ through cuBLASLt. No operator of torch stands for one, so the
profiler has no operand dtypes to offer, only kernels; a kernel's name says what it multiplies. FP8 is read from
spellings alone that were seen beside known operands (docs/transformer_engine.md); every other name that may be a GEMM's
is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.providers.protocol import GemmRecord
from harness.torch_compat import ProfiledKernel, ProfiledOp

# cuBLASLt's own kernels, one letter a type: operands A and B, C, the accumulator, the output D (nvjet_sm90_qrtst_...),
# or both operands, the accumulator and the output (nvjet_sm90_tst_...).
_NVJET = re.compile(r"^nvjet_(?:sm\d+_)?(?P<types>[a-z]{5}|[a-z]{3})_\d")
# Seen on an H200 (sm_90, CUDA 13.0): q and r change places with e4m3 and e5m2 as a recipe's format changes, t, h and s
# with the module's dtype. What the letters of 4-bit operands are has not been seen.
_NVJET_DTYPES = {"q": "float8_e4m3fn", "r": "float8_e5m2", "t": "bfloat16", "h": "float16", "s": "float32"}
# sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_...: each operand's type opens one of the first two groups. How FP8 is spelt
# here has not been seen.
_XMMA = re.compile(r"_xmma_gemm_(?P<a>bf16|f16|tf32|f32)[a-z0-9]*_(?P<b>bf16|f16|tf32|f32)[a-z0-9]*_")
_XMMA_DTYPES = {"bf16": "bfloat16", "f16": "float16", "tf32": "float32", "f32": "float32"}
_SIMT_FP32 = re.compile(r"cutlass_\d+_simt_sgemm_")  # BLAS's letter for single precision

_GEMM = re.compile(r"nvjet|gemm|gemv|matmul|cutlass|xmma|cublas|_mm_|dot_kernel", re.IGNORECASE)
# Parts of a GEMM that another kernel already stands for, and Transformer Engine's own kernels around it.
_PART = re.compile(
    r"split_?k.*reduce|reduce.*split_?k|swizzle|transformer_engine::|block_scaled_|cast_transpose", re.IGNORECASE
)


def classify(kernels: Sequence[ProfiledKernel], ops: Sequence[ProfiledOp]) -> list[GemmRecord]:
    """One record for each kernel that is a GEMM, or whose name looks like one, in the order in which they ran.

    One whose name doesn't tell both operands is unknown, and so is one of an FP8 and a wider operand.
    """
    return [_record(kernel, ops) for kernel in kernels if _GEMM.search(kernel.name) and not _PART.search(kernel.name)]


def _record(kernel: ProfiledKernel, ops: Sequence[ProfiledOp]) -> GemmRecord:
    a_dtype, b_dtype = operands_of(kernel.name)
    narrow = [name.startswith("float8") for name in (a_dtype, b_dtype)]
    if all(narrow):
        kind = "fp8_native"
    elif a_dtype and b_dtype and not any(narrow):
        kind = "high_precision"
    else:
        kind = "unknown"
    return GemmRecord(f"{kernel.name} in {_operator(kernel.op, ops)}", a_dtype, b_dtype, kind)


def _operator(index: int, ops: Sequence[ProfiledOp]) -> str:
    """The innermost operator around a launch. What the profiler calls by other names (a launch of the runtime, a buffer
    of its own) says nothing about who asked for the kernel."""
    while 0 <= index < len(ops):
        name = ops[index].name
        if "::" in name or name.endswith("Backward"):
            return name
        index = ops[index].parent
    return "no operator"


def operands_of(name: str) -> tuple[str, str]:
    """dtypes of A and B, as cuBLASLt orders them, by a kernel's name; empty where it doesn't tell.

    cuBLASLt's A is the second operand of the harness (weight of fprop and dgrad, input of wgrad).
    """
    jet = _NVJET.match(name)
    if jet:
        types = jet["types"]
        b_letter = types[1] if len(types) == 5 else types[0]
        return _NVJET_DTYPES.get(types[0], ""), _NVJET_DTYPES.get(b_letter, "")
    xmma = _XMMA.search(name)
    if xmma:
        return _XMMA_DTYPES[xmma["a"]], _XMMA_DTYPES[xmma["b"]]
    return ("float32", "float32") if _SIMT_FP32.search(name) else ("", "")
