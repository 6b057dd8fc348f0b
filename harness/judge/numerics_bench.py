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
from harness.judge.oracle_engine import WGRAD
from harness.judge.oracle_noise import Noise
from harness.judge.oracle_run import OracleRun, OracleStep, noises_of, records_of_step, run_oracle
from harness.judge.oracle_sites import ProductRun, bias_within, product_within
from harness.judge.oracle_steps import OUTPUT
from harness.judge.scale_product import scale_product_bound
from harness.observe.types import Observations, RunSeen, StepTensors
from harness.program import NoOracle
from harness.providers.protocol import Operand, TapRecord
from harness.types import Axes


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
        return accumulator_of_product(self.obs.arch, self.fast_depth, fast=self.fast_depth > 0)

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
        """What the kernels that summed a weight's gradient, or the output, may be off by: a program must be allowed as
        much.

        ``admissible_difference`` knows a result's size, not that of the products it was summed from, and takes too
        little for an element whose few large products cancel (heavy-tailed data: measured 0.51 of it on an H200).
        """
        own = tensors_of(at)[name]
        return _summed([self._accumulation(product) for product in _direct_products(at, name)], own)

    def _accumulation(self, product: ProductRun) -> torch.Tensor:
        """The accumulation bound of one product, (rows of A, rows of B)."""
        fast = product.record is not None and product.record.fast_accumulation
        accumulator = accumulator_of_product(self.obs.arch, product.a.values.shape[-1], fast)
        bound = product.accumulation_bound(accumulator, self.precision)
        scales = scale_product_bound(product.a, product.b)
        return bound if scales is None else bound + scales

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
        lost = [scale_product_bound(product.a, product.b) for product in _direct_products(at, name)]
        found = [bound for bound in lost if bound is not None]
        return _summed(found, tensors_of(at)[name]) if found else None

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


Judged = tuple[View, int, str, torch.Tensor, torch.Tensor]  # view, step, name, the run's tensor, the oracle's


def _direct_products(at: OracleStep, name: str) -> list[ProductRun]:
    """The FP8 products that a tensor is the sum of, up to operations of high precision: the output's last one, those
    of a weight's gradient."""
    if name == OUTPUT:
        direct = product_within(at.sites, tensors_of(at)[name])
        return [direct] if direct is not None else []
    owners = [site for site in at.sites if site.parameter("weight") == name]
    return [site.products[WGRAD] for site in owners if WGRAD in site.products]


def _summed(bounds: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
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
