"""The seam between the harness and an FP8 library. Everything the harness asks of a library stands here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from harness.types import Spec

if TYPE_CHECKING:
    import torch


class ProviderUnavailable(Exception):
    """The library behind a provider can't be used here. Raised by a provider's constructor; the cell is skipped.

    ``reason`` is the verdict's reason, word for word. ``fix`` is a command that mends it, or empty.
    """

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


@dataclass(frozen=True)
class Support:
    """A provider's belief about one recipe on one architecture.

    ``level`` is ``native``, ``emulated`` or ``unsupported``; ``reason`` is the library's own text. For an unsupported
    recipe ``error`` names the exception class that entering must raise. ``offered`` is False for a recipe that the
    library doesn't have at all: nothing can be entered or refused, and the cell is skipped.
    """

    level: str
    reason: str = ""
    error: str = "RuntimeError"
    offered: bool = True


@dataclass(frozen=True)
class Operand:
    """One quantised operand of an FP8 product, in *reduction-last* orientation: logical shape (rows, reduced).

    A product is ``out[r, c] = sum_k A[r, k] * B[c, k]``:
    fprop A = x (M, K), B = w (N, K); dgrad A = g (M, N), B = w^T (K, N); wgrad A = g^T (N, M), B = x^T (K, M).

    ``source``: the high-precision tensor in this orientation, before quantisation (its own storage).
    ``codes``: uint8 (rows, reduced), the bit pattern of each element (E2M1: one code 0..15 per element, unpacked).
    ``scale``: the decode scale (value = decoded code * scale [* global_scale]), float32, one per block, shape
    (ceil(rows/block[0]), ceil(reduced/block[1])); E8M0 and E4M3 scales are given by value.
    ``global_scale``: NVFP4's second-level decode scale, float32, one element; None elsewhere.
    """

    role: str  # "input" | "weight" | "grad_output"
    format: str  # "e4m3" | "e5m2" | "e2m1"
    block: tuple[int, int]
    source: torch.Tensor
    codes: torch.Tensor
    scale: torch.Tensor
    global_scale: torch.Tensor | None = None


@dataclass(frozen=True)
class TapRecord:
    """One FP8 product as it ran: what it was given and what it returned, before any bias.

    ``recipe`` is the label of the recipe that the op was *given*; ``product`` is fprop, dgrad or wgrad; ``phase`` is
    forward, backward or recompute; ``weight_ptr`` is ``data_ptr()`` of the layer's weight (identifies the layer).
    ``fast_accumulation``: the kernel was asked to keep its sum in the tensor core's own precision
    (CUBLASLT_MATMUL_DESC_FAST_ACCUM); the judge then has a wider bound for this product, and says so.
    """

    recipe: str
    product: str
    phase: str
    a: Operand
    b: Operand
    output: torch.Tensor  # (rows of A, rows of B), output dtype of the kernel
    weight_ptr: int
    fast_accumulation: bool = False


@dataclass(frozen=True)
class GemmRecord:
    """One matrix product seen by the profiler. ``kind``: fp8_native, fp8_emulated, high_precision or unknown.

    An operation that may be a GEMM and that the provider doesn't know is ``unknown``, never FP8. ``inside``: the
    provider's own FP8 operator that it ran in beside the FP8 product, empty where there is none or it can't be told.
    """

    kernel: str
    a_dtype: str
    b_dtype: str
    kind: str
    inside: str = ""


@dataclass(frozen=True)
class DoctorFinding:
    """One line of ``runner.py doctor``. ``fix`` is a command, or empty when nothing is wrong."""

    topic: str
    ok: bool
    text: str
    fix: str = ""


class Autocast(Protocol):
    """A plain function (Dynamo must be able to inline it), keyword arguments as in Transformer Engine."""

    def __call__(self, *, enabled: bool = ..., recipe: Any = ...) -> AbstractContextManager[Any]: ...


class ProgramProvider(Protocol):
    """The part that a case may use. The judge's oracle implements this much."""

    @property
    def autocast(self) -> Autocast: ...

    def recipe(self, spec: Spec) -> Any:
        """A new recipe object for ``spec``; equal specs give equal objects, never the same one."""

    def linear(
        self, in_features: int, out_features: int, *, bias: bool, dtype: torch.dtype, device: torch.device
    ) -> torch.nn.Module:
        """A module with parameters ``weight`` (out, in) and, if asked, ``bias`` (out)."""


class Provider(ProgramProvider, Protocol):
    """An FP8 library under test."""

    name: str
    settings: Mapping[str, Any]
    # Qualified names ("namespace::op") of the FP8 linear ops that stand in captured forward graphs, one per call.
    fp8_ops: frozenset[str]

    def doctor(self) -> Sequence[DoctorFinding]: ...

    def supports(self, recipe: Spec, arch: str) -> Support:
        """The library's own belief; ``arch`` is resolved (never ``host``)."""

    def pretend(self, arch: str) -> AbstractContextManager[None]:
        """Make the library's support checks believe that this machine is ``arch``; no cache outlives the context."""

    def snapshot(self) -> Mapping[str, Any]:
        """All of the library's global state as comparable values; object identities under keys ending in ``.id``."""

    def reset(self) -> None:
        """Back to the state after import, without replacing objects that a compiled graph may hold."""

    def tap(self) -> AbstractContextManager[list[TapRecord]]:
        """Record every FP8 product that runs inside, eager or compiled, without a dispatch mode."""

    def gemms(self, profile: torch.profiler.profile) -> Sequence[GemmRecord]:
        """The matrix products of a profiled step (profiled with ``record_shapes=True``)."""


# What every provider has, also one that wraps another.
MEMBERS = tuple(
    name
    for part in (ProgramProvider, Provider)
    for name in (*part.__annotations__, *vars(part))
    if not name.startswith("_")
)


def product_of(provider: Provider, op: str, args: tuple[Any, ...]) -> tuple[str, str] | None:
    """Which product the operator ``op`` ("namespace::op") is when it is called with ``args``, and the label of the
    recipe that it was given; None for an operator that is none.

    A provider's own ``product_of(op, args)`` says so. Optional: in traced cells, where no kernel runs and the tap sees
    nothing, it is what tells one recipe from another (:func:`tells_products`).
    """
    told: tuple[str, str] | None = getattr(provider, "product_of", lambda op, args: None)(op, args)
    return told


def tells_products(provider: Provider) -> bool:
    """Whether a provider knows its products by their operators."""
    return hasattr(provider, "product_of")


def rehearses(provider: Provider) -> bool:
    """Whether a provider, while it pretends to be another architecture, computes what that would with kernels of the
    CPU. Optional: a setting of its own, ``rehearse``, says so; without it such a cell is traced."""
    return provider.settings.get("rehearse") is True


@dataclass(frozen=True)
class LoadedProvider:
    """A provider together with the spec that named it and the faults that wrap it.

    ``unedited()`` raises FaultError once one of those has edited what judges the cell.
    """

    provider: Provider
    spec: Spec
    faults: tuple[str, ...] = field(default_factory=tuple)
    unedited: Callable[[], None] = lambda: None
