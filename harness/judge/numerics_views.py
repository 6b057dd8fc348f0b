"""A judged run beside the oracle's run of the same program: their tensors by name, their products in pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from harness.judge.compare import same_bits
from harness.judge.oracle_engine import DGRAD, WGRAD
from harness.judge.oracle_run import OracleRun, OracleStep, records_of_step
from harness.judge.oracle_sites import ProductRun, product_within
from harness.judge.oracle_steps import OUTPUT
from harness.observe.types import RunSeen, StepTensors
from harness.providers.protocol import Operand, TapRecord


@dataclass(frozen=True)
class Pair:
    """A product of the oracle's run and the tap's record of it. ``fresh`` False: an earlier view had the same bits."""

    step: int
    product: ProductRun
    record: TapRecord
    fresh: bool = True

    def place(self, view: str) -> str:
        step = f" step {self.step}," if self.step else ""
        return f"{view},{step} {self.product.label}"


@dataclass(frozen=True)
class View:
    """One judged run ("eager" or "compiled") with the oracle's run beside it.

    ``shared``: the oracle's run is that of an earlier view, because every FP8 operand was bit-equal.
    """

    name: str
    run: RunSeen
    oracle: OracleRun
    pairs: tuple[Pair, ...]
    shared: bool = False

    def steps(self) -> Iterator[tuple[int, StepTensors, OracleStep]]:
        for index, (seen, own) in enumerate(zip(self.run.steps, self.oracle.steps, strict=False)):
            yield index, seen, own

    def tensor_place(self, step: int, name: str) -> str:
        at = f" step {step}," if step else ""
        return f"{self.name},{at} {describe(name)}"


def describe(name: str) -> str:
    """A tensor's name in words."""
    return "output" if name == OUTPUT else f"gradient of {name}"


def kind_of(name: str) -> str:
    """What a tensor is, whatever its layer: "output", "input gradient", "weight gradient"..."""
    if name == OUTPUT:
        return "output"
    last = name.rpartition(".")[2]
    kind = last if last in ("weight", "bias") else "input" if name.startswith("input") else "parameter"
    return f"{kind} gradient"


def tensors_of(step: StepTensors | OracleStep) -> Mapping[str, torch.Tensor]:
    """Output and gradients of a step by name."""
    return {OUTPUT: step.output, **step.grads}


Judged = tuple[View, int, str, torch.Tensor, torch.Tensor]  # view, step, name, the run's tensor, the oracle's


def direct_products(at: OracleStep, name: str) -> list[ProductRun]:
    """The FP8 products that a tensor is the sum of, up to operations of high precision: the output's last one, an
    input's dgrad, those of a weight's gradient."""
    own = tensors_of(at)[name]
    if name == OUTPUT:
        direct = product_within(at.sites, own)
        return [direct] if direct is not None else []
    if name.startswith("input"):
        firsts = [site for site in at.sites if DGRAD in site.products and site.dx is not None]
        return [site.products[DGRAD] for site in firsts if site.dx is not None and torch.equal(site.dx, flat(own))]
    owners = [site for site in at.sites if site.parameter("weight") == name]
    return [site.products[WGRAD] for site in owners if WGRAD in site.products]


def flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() > 1 else tensor


def summed(bounds: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    total = sum(bounds, torch.zeros((), dtype=torch.float64))
    return total.expand(like.shape) if total.dim() == 0 else total.reshape(like.shape)


def fresh_tensors(views: Sequence[View]) -> Iterator[Judged]:
    """Tensors of all views, those left out that an earlier view has bit for bit beside the same oracle run."""
    known: dict[tuple[int, str], torch.Tensor] = {}
    for view in views:
        for index, seen, own in view.steps():
            wanted = tensors_of(own)
            for name, tensor in tensors_of(seen).items():
                before = known.setdefault((index, name), tensor)
                repeated = before is not tensor and view.shared and same_bits(before, tensor)
                if name in wanted and not repeated:
                    yield view, index, name, tensor, wanted[name]


def _keyed(run: RunSeen, step: int) -> dict[tuple[str, str, int], TapRecord]:
    """Records of a step by (layer, product, how many of these came before)."""
    keyed: dict[tuple[str, str, int], TapRecord] = {}
    for record in records_of_step(run, step):
        if record.phase != "recompute":
            name = run.layers.get(record.weight_ptr, "?")
            use = sum(key[:2] == (name, record.product) for key in keyed)
            keyed[name, record.product, use] = record
    return keyed


def same_operand(a: Operand, b: Operand) -> bool:
    """True when two operands are bit-equal in everything."""
    if (a.format, a.block, a.role) != (b.format, b.block, b.role):
        return False
    if (a.global_scale is None) != (b.global_scale is None):
        return False
    same_global = a.global_scale is None or b.global_scale is None or same_bits(a.global_scale, b.global_scale)
    return same_global and same_bits(a.codes, b.codes) and same_bits(a.scale, b.scale)


def share_view(first: View, run: RunSeen) -> View | None:
    """A view of ``run`` on the oracle run of ``first``, if both fed the same bits to every FP8 product; else None."""
    partners: dict[int, TapRecord] = {}
    for step in range(len(first.oracle.steps)):
        mine, theirs = _keyed(first.run, step), _keyed(run, step)
        if mine.keys() != theirs.keys():
            return None
        for key, record in mine.items():
            other = theirs[key]
            if not (same_bits(record.a.source, other.a.source) and same_bits(record.b.source, other.b.source)):
                return None
            partners[id(record)] = other
    if len(run.steps) != len(first.run.steps):
        return None
    pairs = []
    for pair in first.pairs:
        other, record = partners[id(pair.record)], pair.record
        same = same_operand(record.a, other.a) and same_operand(record.b, other.b)
        pairs.append(Pair(pair.step, pair.product, other, not (same and same_bits(record.output, other.output))))
    return View("compiled", run, first.oracle, tuple(pairs), shared=True)
