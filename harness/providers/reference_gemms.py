"""Which matrix products of a profiled step were FP8 GEMMs, for the reference provider."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence

from harness.providers.protocol import GemmRecord
from harness.torch_compat import ProfiledOp

_LIBRARY_PREFIX = "fp8ref::"
_PRODUCT_PREFIX = f"{_LIBRARY_PREFIX}product_"
_PACKED_PRODUCT = "fp8ref::product_nvfp4"  # takes two E2M1 codes a byte
_SCALED_MM_PREFIX = "aten::_scaled_mm"  # its overloads and _scaled_mm_v2
_NARROW = frozenset({"float8_e4m3fn", "float8_e5m2", "float4_e2m1fn_x2"})

# High-precision GEMMs of torch, with the position of their first matrix.
_HIGH_PRECISION = {
    "aten::mm": 0,
    "aten::bmm": 0,
    "aten::matmul": 0,
    "aten::linear": 0,
    "aten::mv": 0,
    "aten::dot": 0,
    "aten::einsum": 0,
    "aten::addmm": 1,
    "aten::addmm_": 1,
    "aten::addmv": 1,
    "aten::addbmm": 1,
    "aten::baddbmm": 1,
    "aten::baddbmm_": 1,
    "aten::_addmm_activation": 1,
    "aten::linear_backward": 0,
    "mkldnn::_linear_pointwise": 0,
    "mkl::_mkl_linear": 0,
}
# Any other operator ("namespace::name") that may be a GEMM, and Inductor's GEMM templates. Names without a namespace
# are autograd nodes, or fused pointwise kernels that Inductor names after the operators they came from.
_MAY_BE_GEMM = re.compile(r"^triton_tem|^(?!fp8ref::|autograd::)\w+::\w*(?:mm|gemm|matmul|linear|einsum|conv)\w*$")

_DTYPE_NAMES = {
    "float": "float32",
    "double": "float64",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "float16",
    "unsigned char": "uint8",
}


def classify(ops: Sequence[ProfiledOp]) -> list[GemmRecord]:
    """One record for each outermost matrix product, in the order in which they began on their thread.

    A ``product_*`` operator is native when FP8 ``_scaled_mm`` calls, and no other GEMM, ran in it; emulated
    otherwise. Elsewhere known GEMMs are high precision, and an operator whose name looks like a GEMM is unknown. What
    torch itself calls within a ``_scaled_mm`` belongs to that kernel. A GEMM within another operator of the library,
    not within its product, says so (``inside``).
    """
    products: dict[int, list[ProfiledOp]] = {}  # product -> outermost GEMMs in it
    loose: list[int] = []
    product: list[int] = []  # the product that each call stands in, or -1
    in_gemm: list[bool] = []
    around: list[str] = []  # the operator of the library that each call stands in
    for index, op in enumerate(ops):
        around.append(op.name if op.name.startswith(_LIBRARY_PREFIX) else around[op.parent] if op.parent >= 0 else "")
        owner, covered = (product[op.parent], in_gemm[op.parent]) if op.parent >= 0 else (-1, False)
        if op.name.startswith(_PRODUCT_PREFIX):
            owner = index
            products[index] = []
        elif _is_gemm(op.name):
            if not covered:
                if owner >= 0:
                    products[owner].append(op)
                else:
                    loose.append(index)
            covered = True
        product.append(owner)
        in_gemm.append(covered)
    return [
        _product_record(ops[index], products[index]) if index in products else _loose_record(ops[index], around[index])
        for index in sorted((*products, *loose))
    ]


def is_relevant(name: str) -> bool:
    """Whether :func:`classify` looks at operators of that name."""
    return name.startswith(_LIBRARY_PREFIX) or _is_gemm(name)


@functools.lru_cache(maxsize=4096)
def _is_gemm(name: str) -> bool:
    if name in _HIGH_PRECISION or name.startswith(_SCALED_MM_PREFIX):
        return True
    return bool(_MAY_BE_GEMM.match(name))


def _loose_record(op: ProfiledOp, inside: str) -> GemmRecord:
    a_dtype, b_dtype = _dtypes(op, _HIGH_PRECISION.get(op.name, 0))
    kind = "high_precision" if op.name in _HIGH_PRECISION else "unknown"
    return GemmRecord(op.name, a_dtype, b_dtype, kind, inside)


def _product_record(op: ProfiledOp, gemms: Sequence[ProfiledOp]) -> GemmRecord:
    scaled = [inner for inner in gemms if inner.name.startswith(_SCALED_MM_PREFIX)]
    operands = {_dtypes(inner, 0) for inner in scaled}
    native = len(scaled) == len(gemms) > 0 and all(set(pair) <= _NARROW for pair in operands)
    a_dtype, b_dtype = operands.pop() if len(operands) == 1 else _dtypes(op, 0)
    if op.name == _PACKED_PRODUCT and (a_dtype, b_dtype) == ("uint8", "uint8"):
        a_dtype = b_dtype = "float4_e2m1fn_x2"
    ran = " + ".join(f"{count} {name}" for name, count in Counter(inner.name for inner in gemms).items())
    kernel = f"{op.name} ({ran or 'no torch GEMM'})"
    return GemmRecord(kernel, a_dtype, b_dtype, "fp8_native" if native else "fp8_emulated")


def _dtypes(op: ProfiledOp, first: int) -> tuple[str, str]:
    names = [_DTYPE_NAMES.get(name, name.rpartition("::")[2].lower()) for name in op.dtypes[first : first + 2]]
    a_dtype, b_dtype = [*names, "", ""][:2]
    return a_dtype, b_dtype
