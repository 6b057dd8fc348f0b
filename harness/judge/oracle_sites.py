"""What the oracle writes down while it runs a program: one site per linear call, one product per FP8 product."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch

from harness.judge.bounds import Accumulator, accumulation_bound, admissible_difference
from harness.judge.compare import Worst, within
from harness.judge.formats import Precision
from harness.judge.oracle import OracleOperand
from harness.judge.scale_product import scale_product_bound
from harness.providers.protocol import Operand, TapRecord
from harness.types import Spec

_FPROP = "fprop"  # as harness.judge.oracle_engine, which imports this module, calls it


@dataclass(frozen=True)
class TraceEntry:
    """One FP8 product in the order in which the program asks for it. ``layer``: creation order of the linears."""

    recipe: str
    product: str
    phase: str
    layer: int
    name: str


@dataclass(frozen=True)
class Mismatch:
    """A tap record's source that is not the program's own tensor, so that the oracle went on with its own."""

    operand: str
    reason: str
    worst: Worst | None = None


@dataclass
class ProductRun:
    """One FP8 product of the oracle's run.

    ``exact``: float64 product of the operands' sources; ``quantised``: of their values; both (rows of A, rows of B).
    ``encode_scales``: those of delayed scaling, which a source alone can't tell. ``record``: the tap record that was
    matched with this product, if any.
    """

    site: int
    layer: int
    name: str
    recipe: Spec
    product: str
    a: OracleOperand
    b: OracleOperand
    exact: torch.Tensor
    quantised: torch.Tensor
    encode_scales: tuple[float | None, float | None] = (None, None)
    record: TapRecord | None = None
    mismatches: list[Mismatch] = field(default_factory=list)
    met: list[tuple[str, float]] = field(default_factory=list)  # role, value / bound of each recorded source

    @property
    def error(self) -> torch.Tensor:
        """What quantisation did to this product."""
        return self.quantised - self.exact

    @property
    def label(self) -> str:
        return f"{self.name} {self.product}"

    def kernel_bound(self, accumulator: Accumulator, precision: Precision) -> torch.Tensor:
        """Largest error of a correct kernel of this product, (rows of A, rows of B) float64: of its sums and scales."""
        magnitudes = self.a.values.abs() @ self.b.values.abs().t()
        bound = accumulation_bound(magnitudes, self.a.values.shape[-1], accumulator, precision)
        scales = scale_product_bound(self.a, self.b)
        return bound if scales is None else bound + scales


Activation = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Behind:
    """Where a tensor comes from: index of the ``site`` that returned it, and the activations since, in order."""

    site: int
    through: tuple[Activation, ...] = ()


@dataclass
class Site:
    """One linear call of a program run, in forward order.

    ``stored`` keeps, per result (fprop, dgrad, wgrad, bgrad), the oracle's result minus the exact linear function of
    the program's own tensors: added to that function it replays the run, quantisation and rounding included.
    ``recipe`` is None outside FP8 regions. ``x`` (M, K) is what the site was given, ``y`` (M, N) what it returned,
    ``bias`` (N,) what it had added to its product, ``dx`` (M, K) the gradient that its dgrad returned.
    ``trains``: gradients were wanted. ``behind``: the site whose result ``x`` is.
    """

    index: int
    layer: int
    name: str
    recipe: Spec | None
    x: torch.Tensor
    y: torch.Tensor
    bias: torch.Tensor | None = None
    grad_output: torch.Tensor | None = None
    dx: torch.Tensor | None = None
    operands: dict[str, OracleOperand] = field(default_factory=dict)
    encode_scales: dict[str, float | None] = field(default_factory=dict)
    products: dict[str, ProductRun] = field(default_factory=dict)
    stored: dict[str, torch.Tensor] = field(default_factory=dict)
    trains: bool = True
    behind: Behind | None = None

    def parameter(self, kind: str) -> str:
        """Name of the layer's ``weight`` or ``bias`` in the program's model."""
        return f"{self.name}.{kind}" if self.name else kind


def bias_within(sites: Sequence[Site], value: torch.Tensor) -> torch.Tensor | None:
    """The bias that is part of ``value`` (M, N), where it is what one of ``sites`` returned; None elsewhere."""
    for site in reversed(sites):
        if site.bias is not None and site.y.shape == value.shape and torch.equal(site.y, value):
            return site.bias
    return None


def product_within(sites: Sequence[Site], value: torch.Tensor) -> ProductRun | None:
    """The forward product that ``value`` (M, N) is, bias aside, where one of ``sites`` returned it; None elsewhere."""
    for site in reversed(sites):
        if _FPROP in site.products and site.y.shape == value.shape and torch.equal(site.y, value):
            return site.products[_FPROP]
    return None


@dataclass(frozen=True)
class _Taken:
    """A record and the oracle's product that it was taken for, with that product's own operands."""

    name: str
    product: str
    recipe: str
    a: torch.Tensor
    b: torch.Tensor
    record: TapRecord


class Hints:
    """The tap's records of one step, offered to the oracle as the outcome of roundings that it can't predict.

    A kernel's float32 result near a rounding boundary may go either way, and the next layer's quantiser turns one
    unit of bfloat16 into a whole FP8 step. So before it quantises, the oracle looks at the source that the provider
    recorded: if that lies within the admissible difference of the oracle's own tensor, everywhere, it is the same
    tensor up to rounding and the oracle goes on with it. If not, it keeps its own and notes a mismatch: a tap can't
    lead the oracle anywhere that a correct program could not have gone.

    ``merging``: the records are those of code in which AOT runs equal calls once. A product on the very operands of an
    earlier one, by the oracle's own tensors, then shares its record. ``aliases``: of layers that share a weight, which
    a record can't tell apart, each one's name -> the name of one of them.
    """

    def __init__(
        self,
        records: Iterable[TapRecord],
        layers: Mapping[int, str],
        *,
        merging: bool = False,
        aliases: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._aliases = aliases
        self._free: dict[tuple[str, str], list[TapRecord]] = {}
        self._merging = merging
        self._taken: list[_Taken] = []
        self.unknown: list[TapRecord] = []
        for record in records:
            if record.phase == "recompute":
                continue
            name = layers.get(record.weight_ptr)
            if name is None:
                self.unknown.append(record)
            else:
                self._free.setdefault((aliases.get(name, name), record.product), []).append(record)

    def take(
        self, name: str, product: str, a: torch.Tensor, b: torch.Tensor | None = None, recipe: str = ""
    ) -> TapRecord | None:
        """The record of ``product`` in layer ``name``; of several (a layer used twice), the one nearest to ``a``.

        ``a`` and ``b``: the oracle's own operands; ``recipe``: the label of the product's.
        """
        name = self._aliases.get(name, name)
        free = self._free.get((name, product), [])
        before = self._taken_for(name, product, a, b, recipe)
        if before is not None:
            again = [i for i, one in enumerate(free) if torch.equal(one.a.source, before.a.source)]
            return free.pop(again[0]) if again else before
        if not free:
            return None
        nearest = 0
        if len(free) > 1:
            nearest = min(range(len(free)), key=lambda i: _distance(free[i].a.source, a))
        record = free.pop(nearest)
        if self._merging and b is not None:
            self._taken.append(_Taken(name, product, recipe, a.clone(), b.clone(), record))
        return record

    def _taken_for(
        self, name: str, product: str, a: torch.Tensor, b: torch.Tensor | None, recipe: str
    ) -> TapRecord | None:
        """The record that an equal product took, where equal ones run once."""
        if not self._merging or b is None:
            return None
        for one in self._taken:
            same_call = (one.name, one.product, one.recipe) == (name, product, recipe)
            if same_call and torch.equal(one.a, a) and torch.equal(one.b, b):
                return one.record
        return None

    def left_over(self) -> Sequence[TapRecord]:
        """Records that no product of the oracle's run asked for."""
        return [record for records in self._free.values() for record in records]


def _distance(source: torch.Tensor, own: torch.Tensor) -> float:
    if source.shape != own.shape:
        return float("inf")
    distance = float((source.to(own) - own).abs().sum().item())
    return distance if distance == distance else float("inf")


def resolve(
    own: torch.Tensor,
    operand: Operand,
    precision: Precision,
    accumulator: Accumulator,
    noise: torch.Tensor | None = None,
    added: torch.Tensor | None = None,
    met: list[tuple[str, float]] | None = None,
    kernel: torch.Tensor | None = None,
) -> tuple[torch.Tensor, Mismatch | None]:
    """The tensor to quantise: the recorded source where admissible, else ``own`` and why; both (rows, reduced).

    ``noise`` and ``added`` as in :func:`harness.judge.bounds.admissible_difference`. ``met`` gets the role and the
    largest value / bound. ``kernel``: what the kernel of an earlier product may have moved ``own`` by
    (harness.judge.oracle_kernels); allowed where it is the larger of the two, as where few large terms cancel (a dgrad
    on heavy-tailed data: 0.56 of the other on an H200).
    """
    source = operand.source.detach().to(own)
    if source.shape != own.shape:
        return own, Mismatch(operand.role, f"shape {tuple(source.shape)} instead of {tuple(own.shape)}")
    if torch.equal(source, own):
        if met is not None:
            met.append((operand.role, 0.0))
        return own, None
    bound = admissible_difference(own, precision, accumulator, noise, added)
    if kernel is not None:
        bound = torch.maximum(bound, kernel)
    worst = within((source - own).abs(), bound)
    if met is not None:
        met.append((operand.role, worst.ratio))
    if worst.ok:
        return source, None
    return own, Mismatch(operand.role, "another", worst)
