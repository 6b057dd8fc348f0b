"""What the numeric checks look at: a cell's runs, each beside the oracle's run of the same program."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import torch

from harness.judge.alpha import Alpha, noise_rms, project_shares, rounding_rms
from harness.judge.bounds import Accumulator, accumulator_of_product, admissible_difference
from harness.judge.compare import same_bits, within
from harness.judge.formats import Precision, precision_of
from harness.judge.numerics_views import (
    Judged,
    Pair,
    View,
    direct_products,
    flat,
    fresh_tensors,
    kind_of,
    share_view,
    summed,
    tensors_of,
)
from harness.judge.oracle_kernels import forward_kernel
from harness.judge.oracle_noise import Noise
from harness.judge.oracle_run import OracleStep, noises_of, run_oracle
from harness.judge.oracle_sites import ProductRun, bias_within
from harness.judge.oracle_steps import OUTPUT
from harness.judge.scale_product import scale_product_bound
from harness.observe.types import Observations, RunSeen
from harness.program import NoOracle
from harness.types import Axes


@dataclass(frozen=True)
class Margin:
    """The largest value / bound that a check met, and where."""

    ratio: float
    where: str


@dataclass
class Tally:
    """What one part of a check met in a cell: how many comparisons and, where they have a bound, the largest value /
    bound; how many of those for equality were unequal. harness.judge.calibrate_catalogue says what each part is."""

    count: int = 0
    differing: int = 0
    worst: Margin | None = None


T = TypeVar("T")


def on_cpu(value: T) -> T:
    """``value`` with every tensor in it on the CPU, where the oracle computes; unchanged parts are kept as they are."""
    return cast(T, _on_cpu(value))


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value if value.device.type == "cpu" else value.detach().cpu().requires_grad_(value.requires_grad)
    if is_dataclass(value) and not isinstance(value, type):
        moved = {f.name: _on_cpu(getattr(value, f.name)) for f in fields(value)}
        changed = any(moved[f.name] is not getattr(value, f.name) for f in fields(value))
        return replace(value, **moved) if changed else value
    if isinstance(value, Mapping):
        moved = {key: _on_cpu(item) for key, item in value.items()}
        return moved if any(moved[key] is not item for key, item in value.items()) else value
    if isinstance(value, tuple):
        items = tuple(_on_cpu(item) for item in value)
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value


@dataclass
class Bench:
    """A cell's observations, prepared for the numeric checks. Oracle runs are made once, on first use.

    ``raw`` is what was observed; ``obs`` the same with all tensors on the CPU. ``noisy``: the noise of high-precision
    operations is measured in any case, as it would be if the run were not within the tight bounds.
    """

    raw: Observations
    axes: Axes
    runs: tuple[str, ...] = ("eager", "compiled")  # those that are judged
    noisy: bool = False
    margins: dict[str, Margin] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)  # by check and part
    _allowed: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    @functools.cached_property
    def obs(self) -> Observations:
        return on_cpu(self.raw) if torch.cuda.is_available() else self.raw

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.axes.dtype)
        return dtype

    @property
    def precision(self) -> Precision:
        return precision_of(self.dtype)

    @functools.cached_property
    def accumulator(self) -> Accumulator:
        """Of the cell's kernels, for what is judged without knowing which product it came from: the least precise."""
        return accumulator_of_product(self.obs.kernels, self.fast_depth, fast=self.fast_depth > 0)

    @functools.cached_property
    def fast_depth(self) -> int:
        """Largest K of the products that were asked for fast accumulation; 0 where none was."""
        runs = [run for run in (self.obs.eager, self.obs.compiled) if run is not None]
        records = (record for run in runs for record in run.records if record.fast_accumulation)
        return max((record.a.codes.shape[-1] for record in records), default=0)

    @functools.cached_property
    def views(self) -> tuple[View, ...]:
        """The runs that executed, eager first.

        Where a run is not within the tight bounds, the noise of the program's high-precision operations is measured; a
        program that has any is then judged with it.

        Raises:
            OracleUnsupported: the oracle can't run the program.
        """
        views = self._views(())
        if not self.noisy and self._explained(views):
            return views
        noises = self._noises()
        return views if all(noise.silent for noise in noises) else self._views(noises)

    def _noises(self) -> Sequence[Noise]:
        run = self.judged("eager") or self.judged("compiled")
        if run is None:
            return ()
        try:
            return noises_of(self.obs, run, self.dtype)
        except (RuntimeError, NoOracle) as error:  # torch mixes no dtypes: the program has float64 constants of its own
            self.notes.append(f"noise of high-precision operations not measured: {error}")
            return ()

    def _views(self, noises: Sequence[Noise]) -> tuple[View, ...]:
        views: list[View] = []
        eager, compiled = self.judged("eager"), self.judged("compiled")
        if eager is not None:
            views.append(self._own_view("eager", eager, noises))
        if compiled is not None:
            shared = share_view(views[0], compiled) if views else None
            views.append(shared or self._own_view("compiled", compiled, noises))
        return tuple(views)

    def judged(self, name: str) -> RunSeen | None:
        """The run of that name ("eager" or "compiled"), if it is there and among those that are judged."""
        run: RunSeen | None = getattr(self.obs, name) if name in self.runs else None
        return run

    def _explained(self, views: Sequence[View]) -> bool:
        """True when every tensor, inside and out, is within the tight bounds."""
        if any(product.mismatches for view in views for step in view.oracle.steps for product in step.products):
            return False
        return all(
            seen.shape == own.shape and within((seen.to(own) - own).abs(), self.allowed(view, step, name)).ok
            for view, step, name, seen, own in fresh_tensors(views)
        )

    def prepare(self) -> None:
        """Run the oracle now.

        Raises:
            OracleUnsupported: the oracle can't build or run the program.
        """
        self.views  # noqa: B018  (a cached property: this fills it)

    def _own_view(self, name: str, run: RunSeen, noises: Sequence[Noise]) -> View:
        compiled = name == "compiled"
        merging = compiled and self.axes.backend != "eager"
        oracle = run_oracle(self.obs, run, self.dtype, self.accumulator, noises, compiled=compiled, merging=merging)
        pairs = tuple(
            Pair(index, product, product.record)
            for index, step in enumerate(oracle.steps)
            for product in step.products
            if product.record is not None
        )
        return View(name, run, oracle, pairs)

    def allowed(self, view: View, step: int, name: str) -> torch.Tensor:
        """How far a correct program's tensor may be from the oracle's; computed once for each tensor."""
        at = view.oracle.steps[step]
        own = tensors_of(at)[name]
        key = id(own)  # the tensor is kept beside its bound, so that the id stays its own
        if key not in self._allowed:
            noise = at.noise.tensors.get(name)
            added = bias_within(at.sites, own) if name == "output" else None
            bound = admissible_difference(own, self.precision, self.accumulator, noise, added)
            self._allowed[key] = (own, torch.maximum(bound, self._kernels(at, name).reshape(bound.shape)))
        return self._allowed[key][1]

    def _kernels(self, at: OracleStep, name: str) -> torch.Tensor:
        """How far kernels may have moved the output or a gradient: a program must be allowed as much.

        ``admissible_difference`` knows a result's size, not that of the products it was summed from, and takes too
        little for an element whose few large products cancel (heavy-tailed data: measured 0.51 of it on an H200).
        """
        own = tensors_of(at)[name]
        if name == OUTPUT and at.source is not None:
            moved = forward_kernel(at.sites, flat(own), at.source, self._kernel_bound, self.precision)
            return summed([] if moved is None else [moved], own)
        return summed([self._kernel_bound(product) for product in direct_products(at, name)], own)

    def _kernel_bound(self, product: ProductRun) -> torch.Tensor:
        """The bound of one product's kernel, (rows of A, rows of B)."""
        fast = product.record is not None and product.record.fast_accumulation
        accumulator = accumulator_of_product(self.obs.kernels, product.a.values.shape[-1], fast)
        return product.kernel_bound(accumulator, self.precision)

    @property
    def view(self) -> View:
        """The compiled run where there is one, else the eager one: what a user gets."""
        return self.views[-1]

    @functools.cached_property
    def alphas(self) -> Mapping[str, Sequence[Alpha]]:
        """Projections of the last step of what a user gets: per tensor first the whole, then each direct product."""
        view = self.view
        seen, own = tensors_of(view.run.steps[-1]), tensors_of(view.oracle.steps[-1])
        found: dict[str, Sequence[Alpha]] = {}
        for name, shares in view.oracle.shares.items():
            if name in seen and seen[name].shape == own[name].shape:
                deviation = seen[name].to(torch.float64) - own[name]
                noise = view.oracle.steps[-1].noise.tensors.get(name)
                size = noise_rms(own[name], self.precision, self.accumulator, noise)
                rounding = rounding_rms(own[name], self.precision)
                common = self._scales(view.oracle.steps[-1], name)
                found[name] = project_shares(deviation, shares, size, rounding, common)
        return found

    def _scales(self, at: OracleStep, name: str) -> torch.Tensor | None:
        """What the products of decode scales may have lost in a tensor; None where that is nothing."""
        lost = [scale_product_bound(product.a, product.b) for product in direct_products(at, name)]
        found = [bound for bound in lost if bound is not None]
        return summed(found, tensors_of(at)[name]) if found else None

    @functools.cached_property
    def nondeterministic(self) -> frozenset[str]:
        """Names of tensors that two eager runs, same seed and state, gave with different bits."""
        first, second = self.obs.eager, self.obs.eager_again
        if first is None or second is None:
            return frozenset()
        names = set()
        for one, other in zip(first.steps, second.steps, strict=False):
            others = tensors_of(other)
            names |= {n for n, t in tensors_of(one).items() if n not in others or not same_bits(t, others[n])}
        return frozenset(names)

    def fresh_tensors(self) -> Iterator[Judged]:
        """Every judged tensor, bit-equal repetitions in later views left out."""
        return fresh_tensors(self.views)

    def meet(self, check: str, ratio: float, where: str, part: str) -> None:
        """Remember the largest value / bound of a check, and of the part of it that this comparison belongs to."""
        if check not in self.margins or not ratio <= self.margins[check].ratio:
            self.margins[check] = Margin(ratio, where)
        tally = self._tally(check, part)
        tally.count += 1
        if tally.worst is None or not ratio <= tally.worst.ratio:
            tally.worst = Margin(ratio, where)

    def compared(self, check: str, part: str, count: int = 1, differing: int = 0) -> None:
        """Count comparisons for equality: a check that compared nothing must not look like one that held."""
        tally = self._tally(check, part)
        tally.count += count
        tally.differing += differing

    def _tally(self, check: str, part: str) -> Tally:
        return self.tallies.setdefault((check, part), Tally())

    def part_of(self, view: View, step: int, name: str) -> str:
        """Which terms the admissible difference of a tensor has: the tensor's kind, what was added to it."""
        at = view.oracle.steps[step]
        if name in at.noise.tensors:
            return "with measured noise"
        if name == OUTPUT:
            return "output" if bias_within(at.sites, tensors_of(at)[name]) is None else "output with bias"
        return kind_of(name)
