"""Which recipe runs natively where: the judge's own table, which no provider can import or influence.

A row says what a provider may truthfully believe about one recipe on one architecture. "Native" means that the products
run as FP8 (or FP4) matrix products of the hardware; what else a library does to get there is its own affair.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from harness.types import Finding, Spec

CHECK = "support.belief"
DEFAULT_CHECK = "support.default"

CudaVersion = tuple[int, int]

# Where torch was built without CUDA an architecture can only be pretended; it is taken to have a current toolkit.
ASSUMED_CUDA: CudaVersion = (13, 0)


class Native(enum.Enum):
    """What is known about a native kernel."""

    YES = "yes"  # there is one: a provider that offers the recipe says native
    NO = "no"  # there is none: emulated or unsupported
    MAY = "may"  # stacks differ, for a reason that the row states: any belief is accepted


@dataclass(frozen=True)
class Row:
    """``min_cuda``: older toolkits have no kernel (None: any version does). ``source``: how it is known."""

    native: Native
    source: str
    min_cuda: CudaVersion | None = None


_TE = "Transformer Engine 2.20, check_fp8_support and its siblings"
_CPU = "torch._scaled_mm on the CPU, torch 2.13: tensorwise and rowwise, e4m3 x e4m3 and e5m2 x e4m3 (measured)"
_ROWWISE = "torch._scaled_mm with one scale per row: CUTLASS and cuBLASLt kernels from compute capability 8.9 (PyTorch)"
_HOPPER_BLOCKS = "cuBLASLt has 1x128 and 128x128 block scaling on Hopper alone, from CUDA 12.9 (cuBLAS documentation)"
_BLACKWELL_BLOCKS = (
    "no 1x128 kernel in cuBLASLt (Hopper alone, cuBLAS documentation), but Transformer Engine accepts the recipe from "
    "9.0 on and runs it as MXFP8 with power-of-two scales (NVIDIA/TransformerEngine#2157, #2668): real FP8 products "
    "with other numerics. A library that says native and one that says emulated or unsupported are both truthful"
)
_OCP = "cuBLASLt block-scaled FP8 and FP4 products on compute capability 10.x from CUDA 12.8 (cuBLAS documentation); "
_NO_OCP = "no block-scaled matrix instructions below 10.0; cuBLASLt on sm_90 says NOT_SUPPORTED (measured)"
_SM120_MX = (
    "the hardware has block-scaled instructions (PTX mma with block_scale, sm_120a), but Transformer Engine refuses "
    "(MXFP8 needs 10.0 <= cc < 12.0, NVIDIA/TransformerEngine#2304): a library may offer it or not"
)

_PER_TENSOR: Mapping[str, Row] = {
    "cpu": Row(Native.YES, _CPU),
    "sm89": Row(Native.YES, f"{_TE}: 8.9 with CUDA 12.1", (12, 1)),
    "sm90": Row(Native.YES, f"{_TE}: 9.0 and higher; measured on an H200"),
    "sm100": Row(Native.YES, f"{_TE}: 9.0 and higher"),
    "sm103": Row(Native.YES, f"{_TE}: 9.0 and higher"),
    "sm120": Row(Native.YES, f"{_TE}: 9.0 and higher"),
}

TABLE: Mapping[str, Mapping[str, Row]] = {
    "delayed_scaling": _PER_TENSOR,
    "float8_current_scaling": _PER_TENSOR,
    "float8_rowwise_scaling": {
        "cpu": Row(Native.YES, _CPU),
        "sm89": Row(Native.YES, _ROWWISE, (12, 1)),
        "sm90": Row(Native.YES, f"{_ROWWISE}; measured on an H200"),
        "sm100": Row(Native.YES, _ROWWISE),
        "sm103": Row(Native.YES, _ROWWISE),
        "sm120": Row(Native.YES, _ROWWISE),
    },
    "float8_block_scaling": {
        "cpu": Row(
            Native.MAY,
            "torch._scaled_mm refuses block scales on the CPU (measured), but a sum of FP8 products over K-blocks, "
            "promoted in float32, is what Hopper's kernel computes: native if its products are FP8, else emulated",
        ),
        "sm89": Row(Native.NO, f"{_TE}: 9.0 and higher; {_HOPPER_BLOCKS}"),
        "sm90": Row(Native.YES, f"{_TE}: 9.0 and CUDA 12.9; {_HOPPER_BLOCKS}; measured on an H200", (12, 9)),
        "sm100": Row(Native.MAY, _BLACKWELL_BLOCKS),
        "sm103": Row(Native.MAY, _BLACKWELL_BLOCKS),
        "sm120": Row(Native.MAY, _BLACKWELL_BLOCKS),
    },
    "mxfp8_block_scaling": {
        "cpu": Row(Native.NO, "torch._scaled_mm refuses block scales on the CPU (measured on torch 2.13)"),
        "sm89": Row(Native.NO, _NO_OCP),
        "sm90": Row(Native.NO, _NO_OCP),
        "sm100": Row(Native.YES, f"{_OCP}{_TE}: 10.0 <= cc < 12.0", (12, 8)),
        "sm103": Row(Native.YES, f"{_OCP}{_TE}: 10.0 <= cc < 12.0", (12, 8)),
        "sm120": Row(Native.MAY, _SM120_MX),
    },
    "nvfp4_block_scaling": {
        "cpu": Row(Native.NO, "no FP4 product on the CPU in torch 2.11 to 2.14"),
        "sm89": Row(Native.NO, _NO_OCP),
        "sm90": Row(Native.NO, _NO_OCP),
        "sm100": Row(Native.YES, f"{_OCP}{_TE}: 10.0 and higher", (12, 8)),
        "sm103": Row(Native.YES, f"{_OCP}{_TE}: 10.0 and higher", (12, 8)),
        "sm120": Row(
            Native.YES,
            f"{_TE}: 10.0 and higher; works without RHT and stochastic rounding (NVIDIA/TransformerEngine#2255)",
            (12, 8),
        ),
    },
}

_TE_DEFAULT = (
    "Transformer Engine 2.20, get_default_fp8_recipe: MXFP8 where it is available, else current scaling on compute "
    "capability 12.x, else delayed scaling (NVIDIA/TransformerEngine#1939: it once was MXFP8 on 12.x, which refuses it)"
)

_ALLOWED: Mapping[Native, tuple[str, ...]] = {
    Native.YES: ("native",),
    Native.NO: ("emulated", "unsupported"),
    Native.MAY: ("native", "emulated", "unsupported"),
}


# Rows of a recipe with a format that is not its own default, where that changes what is known: (recipe, format, arch).
FORMATS: Mapping[tuple[str, str, str], Row] = {
    ("float8_block_scaling", "HYBRID", "sm90"): Row(
        Native.MAY,
        "Transformer Engine multiplies e5m2 gradients in 1x128 blocks through cuBLASLt (measured on an H200); "
        "F.scaled_mm and torch._scaled_mm refuse them (measured there, torch 2.11): stacks differ",
    )
}


def native(recipe: str, arch: str, cuda: CudaVersion | None) -> Native:
    """Whether ``recipe`` (its name, without fields) runs natively on the resolved ``arch`` with this CUDA toolkit.

    Raises:
        KeyError: no row for the recipe or the architecture.
    """
    row = TABLE[recipe][arch]
    too_old = arch != "cpu" and row.min_cuda is not None and (cuda or ASSUMED_CUDA) < row.min_cuda
    return Native.NO if too_old else row.native


def judge_support(
    recipe: str,
    arch: str,
    cuda: CudaVersion | None,
    believed_level: str,
    *,
    offered: bool = True,
    fp8_format: str = "",
) -> list[Finding]:
    """A provider's belief about one recipe against the table.

    Red: native where there is no kernel, and unsupported or emulated where there is one. Emulation is fine wherever
    there is no kernel.

    Args:
        recipe: the recipe's name. ``arch``: resolved, never ``host``. ``cuda``: the toolkit torch was built with, None
            for a build without.
        believed_level: ``native``, ``emulated`` or ``unsupported``.
        offered: False for a recipe that the library doesn't have on any device of this kind; then only a belief in
            native where there is no kernel is wrong.
        fp8_format: the recipe's field of that name, where it was set.
    """
    special = FORMATS.get((recipe, fp8_format, arch))
    known = special.native if special else native(recipe, arch, cuda)
    allowed = _ALLOWED[known]
    if not offered and "unsupported" not in allowed:
        allowed = (*allowed, "unsupported")
    if believed_level in allowed:
        return []
    row = TABLE[recipe][arch]
    toolkit = "" if arch == "cpu" else f", CUDA {'.'.join(map(str, cuda)) if cuda else 'current'}"
    return [
        Finding(
            check=CHECK,
            expected=f"{' or '.join(allowed)} ({row.source})",
            got=believed_level,
            where=f"{recipe} on {arch}{toolkit}",
        )
    ]


def default_recipe(arch: str, cuda: CudaVersion | None) -> str:
    """Name of the recipe of a region that names none, on the resolved ``arch`` (Transformer Engine's rule).

    Raises:
        KeyError: not an architecture of the table.
    """
    if arch != "sm120" and native("mxfp8_block_scaling", arch, cuda) is Native.YES:
        return "mxfp8_block_scaling"
    return "float8_current_scaling" if arch == "sm120" else "delayed_scaling"


def judge_default(claimed: Spec, arch: str, cuda: CudaVersion | None) -> list[Finding]:
    """The recipe that a provider names as its default on ``arch``, against the rule."""
    wanted = default_recipe(arch, cuda)
    if claimed.name == wanted:
        return []
    return [Finding(DEFAULT_CHECK, f"{wanted} ({_TE_DEFAULT})", claimed.label, where=f"default recipe on {arch}")]
