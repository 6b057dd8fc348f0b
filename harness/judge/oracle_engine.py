"""The oracle's linear algebra: a run that quantises and keeps a record, and replays of that record.

A product's operands are rounded to the program's dtype, quantised by :mod:`harness.judge.oracle`, multiplied in float64
and rounded once to the program's dtype; a bias is added after that and rounded again. Values stay in float64.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch

from harness.judge.bounds import FP32, Accumulator
from harness.judge.formats import Precision, round_to
from harness.judge.oracle import OracleOperand, block_of, quantize, transposed
from harness.judge.oracle_delayed import Memories
from harness.judge.oracle_kernels import forward_kernel, gradient_kernel
from harness.judge.oracle_sites import (
    Behind,
    Hints,
    Mismatch,
    ProductRun,
    Site,
    TraceEntry,
    bias_within,
    resolve,
)
from harness.providers.protocol import Operand
from harness.types import Spec

FPROP, DGRAD, WGRAD, BGRAD = "fprop", "dgrad", "wgrad", "bgrad"  # bgrad, the bias gradient, is no FP8 product

Forwarded = tuple[torch.Tensor, int]  # a linear's result, and the index of its site
OperandNoise = Mapping[tuple[int, str], torch.Tensor]  # (site, "input" or "grad_output") -> size, natural orientation


@dataclass(frozen=True)
class Call:
    """A linear call as the program makes it. ``recipe`` is None where no FP8 region is open; ``trains``: gradients are
    wanted, so that delayed scaling records amaxes; ``calibrates``: the recipe that a call in high precision records its
    operands' amaxes for; ``behind``: the site whose result it is given (harness.judge.oracle_kernels)."""

    layer: int
    name: str
    recipe: Spec | None
    trains: bool = True
    calibrates: Spec | None = None
    behind: Behind | None = None


class Engine(Protocol):
    """What a linear asks for. All tensors float64 and two-dimensional; ``site`` is what ``fprop`` returned."""

    def fprop(self, call: Call, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None) -> Forwarded: ...

    def recompute(self, call: Call, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None) -> Forwarded: ...

    def dgrad(self, site: int, g: torch.Tensor, w: torch.Tensor) -> torch.Tensor: ...

    def wgrad(self, site: int, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor: ...

    def bgrad(self, site: int, g: torch.Tensor) -> torch.Tensor: ...


@dataclass
class RunEngine:
    """Runs programs step by step; scales of delayed scaling live on from step to step, everything else is per step.

    ``quantise`` False is the unquantised program: the same roundings to the program's dtype, exact products.
    """

    precision: Precision
    accumulator: Accumulator = FP32
    quantise: bool = True
    hints: Hints | None = None
    noise: OperandNoise = field(default_factory=dict)
    memories: Memories = field(default_factory=Memories)
    sites: list[Site] = field(default_factory=list)
    trace: list[TraceEntry] = field(default_factory=list)
    recomputed: list[int] = field(default_factory=list)
    ends: tuple[Behind, torch.Tensor] | None = None

    def begin(self, hints: Hints | None, noise: OperandNoise) -> None:
        """A new step."""
        self.hints, self.noise = hints, noise
        self.sites, self.trace, self.recomputed = [], [], []
        self.ends = None

    def begin_pass(self, ends: tuple[Behind, torch.Tensor] | None = None) -> None:
        """A new pass over the step's backward, which begins at ``ends``: the site there, and the output's gradient."""
        self.ends = ends
        for site in self.sites:
            site.encode_scales.pop("grad_output", None)

    def fprop(self, call: Call, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None) -> Forwarded:
        recipe = call.recipe if self.quantise else None
        # Detached: a site that held the program's own tensors would hold the autograd graph, which holds the provider
        # and so the site, a cycle through C++ that no garbage collector sees.
        kept = None if bias is None else bias.detach().clone()  # a later step may change it in place
        site = Site(len(self.sites), call.layer, call.name, recipe, x.detach(), y=x.new_empty(0), bias=kept)
        site.trains, site.behind = call.trains, call.behind
        self.sites.append(site)
        own = round_to(x, self.precision)
        if recipe is None:
            site.operands["input"] = _plain("input", own)
            y = own @ w.t()
            self._calibrate(call, own, w)
        else:
            run = self._product(site, recipe, FPROP, ("input", own), ("weight", w))
            y = round_to(run.quantised, self.precision)
        linear = x @ w.t()
        if bias is not None:
            y, linear = y + bias, linear + bias
        y = round_to(y, self.precision)
        site.y, site.stored[FPROP] = y.clone(), y - linear  # the program may go on with y in place
        return y, site.index

    def _calibrate(self, call: Call, x: torch.Tensor, w: torch.Tensor) -> None:
        """Amaxes of a call in high precision, for the scales of later ones. The gradient's is none of the forward's."""
        recipe = call.calibrates
        if recipe is None or recipe.name != "delayed_scaling" or not call.trains:
            return
        for role, tensor in (("input", x), ("weight", w)):
            self.memories.use(call.layer, role, recipe, float(tensor.abs().amax().item()))

    def recompute(self, call: Call, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None) -> Forwarded:
        """A forward that runs again during backward is the forward it repeats, recipe and codes included, whatever
        region is open by then: that is what checkpointing means, and where eager frameworks go wrong."""
        waiting = [s for s in self.sites if s.layer == call.layer and s.index not in self.recomputed]
        same = [s for s in waiting if s.x.shape == x.shape and torch.equal(s.x, x)]
        if not same:
            raise RuntimeError(f"layer {call.name} runs in backward on an input that forward has not seen")
        site = same[0]
        self.recomputed.append(site.index)
        if site.recipe is not None:
            self.trace.append(TraceEntry(site.recipe.label, FPROP, "recompute", site.layer, site.name))
        return site.y.clone(), site.index

    def dgrad(self, site: int, g: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        at = self.sites[site]
        at.grad_output = g.detach()
        own = round_to(g, self.precision)
        if at.recipe is None:
            dx = own @ w
        else:
            dx = self._product(at, at.recipe, DGRAD, ("grad_output", own), ("weight", w.t())).quantised
        dx = round_to(dx, self.precision)
        at.dx, at.stored[DGRAD] = dx.clone(), dx - g @ w
        return dx

    def wgrad(self, site: int, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        at = self.sites[site]
        at.grad_output = g.detach()
        used = at.operands["input"].source
        if at.recipe is None:
            dw = round_to(g, self.precision).t() @ used
        else:
            known = at.operands.get("grad_output")
            own = round_to(g, self.precision) if known is None else known.source
            dw = self._product(at, at.recipe, WGRAD, ("grad_output", own.t()), ("input", used.t())).quantised
        dw = round_to(dw, self.precision)
        at.stored[WGRAD] = dw - g.t() @ x
        return dw

    def bgrad(self, site: int, g: torch.Tensor) -> torch.Tensor:
        known = self.sites[site].operands.get("grad_output")  # as dgrad or wgrad were given it
        own = round_to(g, self.precision) if known is None else known.source
        db = round_to(own.sum(0), self.precision)
        self.sites[site].stored[BGRAD] = db - g.sum(0)
        return db

    def _product(
        self, site: Site, recipe: Spec, product: str, a: tuple[str, torch.Tensor], b: tuple[str, torch.Tensor]
    ) -> ProductRun:
        """Quantise both operands and multiply them. ``a`` and ``b``: role and own tensor (rows, reduced)."""
        record = None if self.hints is None else self.hints.take(site.name, product, a[1], b[1], recipe.label)
        mismatches: list[Mismatch] = []
        met: list[tuple[str, float]] = []
        first = self._operand(site, recipe, product, a, record.a if record else None, mismatches, met)
        second = self._operand(site, recipe, product, b, record.b if record else None, mismatches, met)
        run = ProductRun(
            site=site.index,
            layer=site.layer,
            name=site.name,
            recipe=recipe,
            product=product,
            a=first,
            b=second,
            exact=first.source @ second.source.t(),
            quantised=first.values @ second.values.t(),
            encode_scales=(site.encode_scales.get(a[0]), site.encode_scales.get(b[0])),
            record=record,
            mismatches=mismatches,
            met=met,
        )
        site.products[product] = run
        phase = "forward" if product == FPROP else "backward"
        self.trace.append(TraceEntry(recipe.label, product, phase, site.layer, site.name))
        return run

    def _operand(
        self,
        site: Site,
        recipe: Spec,
        product: str,
        own: tuple[str, torch.Tensor],
        seen: Operand | None,
        mismatches: list[Mismatch],
        met: list[tuple[str, float]],
    ) -> OracleOperand:
        role, source = own[0], own[1].contiguous()
        if role == "weight":
            source = source.detach().clone()  # the parameter itself, which a later step may change in place
        natural = product == FPROP or (product == DGRAD and role == "grad_output")
        if seen is not None and role != "weight":  # a weight is a parameter: known exactly, never hinted
            noise = self.noise.get((site.index, role))
            noise = noise if natural or noise is None else noise.t()
            added = bias_within(self.sites, source) if product == FPROP else None
            kernel = self._kernel_before(site, product, role, source)
            source, mismatch = resolve(source, seen, self.precision, self.accumulator, noise, added, met, kernel)
            if mismatch is not None:
                mismatches.append(mismatch)
        base = site.operands.get(role)
        if not natural and base is not None and _own_transpose(recipe, base) and torch.equal(base.source.t(), source):
            return transposed(base, role)
        operand = quantize(source, recipe, role, tensor_scale=self._encode_scale(site, recipe, role, source))
        if natural:
            site.operands[role] = operand
        return operand

    def _kernel_before(self, site: Site, product: str, role: str, source: torch.Tensor) -> torch.Tensor | None:
        """How far the kernels of earlier products may have moved an operand's source, in its own orientation."""
        if product == FPROP:
            return forward_kernel(self.sites, source, site.behind, self._kernel_bound, self.precision)
        if role != "grad_output":
            return None  # the input that fprop resolved
        natural = source if product == DGRAD else source.t()
        bound = gradient_kernel(self.sites, site.index, natural, self.ends, self._kernel_bound, self.precision)
        return bound if bound is None or product == DGRAD else bound.t()

    def _kernel_bound(self, product: ProductRun) -> torch.Tensor:
        return product.kernel_bound(self.accumulator, self.precision)

    def _encode_scale(self, site: Site, recipe: Spec, role: str, source: torch.Tensor) -> float | None:
        """Delayed scaling's encode scale: asked for once per site and role, backward keeps what forward used."""
        if recipe.name != "delayed_scaling":
            return None
        scale = site.encode_scales.get(role)
        if scale is None:
            amax = float(source.abs().amax().item()) if site.trains else None
            scale = self.memories.use(site.layer, role, recipe, amax)
            site.encode_scales[role] = scale
        return scale


def _plain(role: str, source: torch.Tensor) -> OracleOperand:
    empty = source.new_empty(0)
    return OracleOperand(role, "", (0, 0), source, empty, empty)


def _own_transpose(recipe: Spec, operand: OracleOperand) -> bool:
    """True when the transposed source has the transposed codes: its blocks are the transposed blocks."""
    rows, columns = operand.source.shape
    return block_of(recipe, operand.role, (columns, rows)) == (operand.block[1], operand.block[0])


@dataclass
class ReplayEngine:
    """Replays a run with its stored errors held fixed, without the quantisation errors of the ``removed`` products.

    With nothing removed it gives the run's own results. ``removed``: pairs (site index, product). ``weights`` False
    leaves weight gradients out (zeros), for replays of which only input gradients are wanted.
    """

    run: RunEngine
    removed: Collection[tuple[int, str]]
    weights: bool = True
    _next: int = 0
    _next_recompute: int = 0

    def fprop(self, call: Call, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None) -> Forwarded:
        index, self._next = self._next, self._next + 1
        return self._forward(index, x, w, bias), index

    def recompute(self, call: Call, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None) -> Forwarded:
        index = self.run.recomputed[self._next_recompute]
        self._next_recompute += 1
        return self._forward(index, x, w, bias), index

    def _forward(self, index: int, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        y = x @ w.t() + self._error(index, FPROP)
        return y if bias is None else y + bias

    def dgrad(self, site: int, g: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return g @ w + self._error(site, DGRAD)

    def wgrad(self, site: int, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        if not self.weights:
            return g.new_zeros(g.shape[1], x.shape[1])
        return g.t() @ x + self._error(site, WGRAD)

    def bgrad(self, site: int, g: torch.Tensor) -> torch.Tensor:
        return g.sum(0) + self._error(site, BGRAD)

    def _error(self, index: int, product: str) -> torch.Tensor:
        site = self.run.sites[index]
        if (index, product) in self.removed:
            return site.stored[product] - site.products[product].error
        return site.stored[product]
