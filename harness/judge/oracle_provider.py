"""The oracle as a provider: runs a case's own program, eager only, with the judge's arithmetic.

It implements the part of the provider protocol that a case may use (recipe, autocast, linear), so that one builder
makes both programs and a case never describes its arithmetic twice. Region nesting is a stack of its own: leaving a
region, by an exception too, restores the entry below.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.utils.checkpoint

from harness.judge.bounds import FP32, Accumulator
from harness.judge.formats import precision_of, round_to
from harness.judge.oracle import settings
from harness.judge.oracle_engine import Call, Engine, OperandNoise, RunEngine
from harness.judge.oracle_kernels import behind
from harness.judge.oracle_sites import Behind, Hints, TraceEntry
from harness.providers.protocol import Autocast
from harness.types import Spec

MODES = ("quantised", "exact")


class OracleUnsupported(Exception):
    """The program asks for something that no specification settles, e.g. a library's own default recipe."""


@dataclass(frozen=True)
class OracleRecipe:
    """A recipe as the oracle's programs hold it; equal specs are equal."""

    spec: Spec


@dataclass(frozen=True)
class _Region:
    recipe: Spec | None  # None: FP8 is off inside
    capturing: bool = False
    calibrates: Spec | None = None


class OracleLinear(torch.nn.Module):
    """y = x w^T + bias with parameters in float64; what happens in between is the provider's engine."""

    def __init__(self, provider: OracleProvider, layer: int, shape: tuple[int, int], bias: bool, device: Any) -> None:
        super().__init__()
        self.layer = layer
        self.provider = provider
        self.weight = torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64, device=device))
        self.bias: torch.nn.Parameter | None = None
        if bias:
            self.bias = torch.nn.Parameter(torch.zeros(shape[0], dtype=torch.float64, device=device))

    def forward(self, x: torch.Tensor, kept: torch.Tensor | None = None) -> torch.Tensor:
        """``kept``: what stands in for the weight, whose gradient is the weight's."""
        flat = x.to(torch.float64).reshape(-1, x.shape[-1])
        weight = self.weight  # of a parametrized module it is computed
        w, b = weight.to(torch.float64), None if self.bias is None else self.bias.to(torch.float64)
        if not isinstance(weight, torch.nn.Parameter):  # the program computes it in its dtype; a parameter has it
            w = _Kept.apply(w, round_to(w.detach(), self.provider.run.precision))
        if kept is not None:
            w = _Kept.apply(w, kept.to(torch.float64))  # type: ignore[no-untyped-call]
        # Asked here: inside of a Function gradients are always off, and no tensor knows where it comes from.
        asked = torch.is_grad_enabled(), behind(x)
        y: torch.Tensor = _Linear.apply(flat, w, b, self.provider, self.layer, *asked)  # type: ignore[no-untyped-call]
        return y.reshape(*x.shape[:-1], y.shape[-1]).to(x.dtype)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        w: torch.Tensor,
        bias: torch.Tensor | None,
        provider: OracleProvider,
        layer: int,
        trains: bool,
        source: Behind | None,
    ) -> torch.Tensor:
        y, ctx.site = provider.call(layer, x, w, bias, trains, source)
        ctx.save_for_backward(x, w)
        ctx.provider = provider
        return y

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, w = ctx.saved_tensors
        (g,) = grads
        engine: Engine = ctx.provider.engine
        g = g.to(torch.float64).contiguous()
        dx = engine.dgrad(ctx.site, g, w) if ctx.needs_input_grad[0] else None
        dw = engine.wgrad(ctx.site, g, x) if ctx.needs_input_grad[1] else None
        db = engine.bgrad(ctx.site, g) if ctx.needs_input_grad[2] else None
        return dx, dw, db, None, None, None, None


class _Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        return kept.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return grads[0], None


def _nothing(*args: Any) -> None:
    """The oracle allocates nothing in advance."""


def _without_checkpoint(function: Callable[..., torch.Tensor], *args: Any, **options: Any) -> torch.Tensor:
    del options  # use_reentrant and the like: how it is recomputed
    return function(*args)


def _supported(recipe_name: str) -> tuple[bool, str]:
    """A support check: a program runs only where its recipes are supported."""
    del recipe_name
    return True, ""


class OracleProvider:
    """Runs programs with the oracle's arithmetic and keeps what it did.

    Args:
        model_dtype: the dtype that the judged program runs in; operands and results are rounded to it.
        mode: ``quantised`` (Q) or ``exact`` (U: the same program without quantisation).
        accumulator: of the judged kernels; decides how near a tap's sources must be to be taken for the program's own.

    A driver calls :meth:`begin_step`, the program's forward, and its backward inside :meth:`backward_pass`.
    """

    def __init__(self, model_dtype: torch.dtype, mode: str = "quantised", accumulator: Accumulator = FP32) -> None:
        if mode not in MODES:
            raise ValueError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
        self.run = RunEngine(precision_of(model_dtype), accumulator, quantise=mode == "quantised")
        self.engine: Engine = self.run
        self._layers = 0
        self._names: dict[int, str] = {}
        self._regions: list[_Region] = []
        self._kept: dict[int, tuple[Spec, torch.Tensor]] = {}  # by layer, from one step to the next
        self._skip = False
        self._in_backward = False
        self._default: Spec | None = None
        self._first_is_free = False

    def assume_default_recipe(self, spec: Spec) -> None:
        """A region that names no recipe has this one: no specification says which, so a case has to."""
        settings(spec)
        self._default = spec

    @property
    def features(self) -> Mapping[str, Callable[..., Any]]:
        """What cases may ask for beyond the protocol (harness.program.features_of), by definition.

        A checkpoint changes nothing of what is computed. Torch's is left out as well, since a reentrant one can't be
        asked for single gradients; where a program keeps one, the engine knows a recompute as the forward it repeats.
        A cached weight is the quantised weight of the last call that refreshed it. Made anew each time: kept, it would
        be a cycle.
        """
        return {
            "assume_default_recipe": self.assume_default_recipe,
            "checkpoint": _without_checkpoint,
            "torch_checkpoint": _without_checkpoint,
            "cached_linear": self._cached_linear,
            "prepare_weight_cache": _nothing,
            "calibrating_autocast": self._calibrating_autocast,
            "capturing_autocast": self._capturing_autocast,
            "skip_weight_update": self._skip_weight_update,
            "first_module": self._claim_first,
            "reset_state": self.forget,
            "support_check": _supported,
        }

    @property
    def autocast(self) -> Autocast:
        """``autocast(enabled=..., recipe=...)``, a context manager as in Transformer Engine."""
        return self._autocast

    def recipe(self, spec: Spec) -> OracleRecipe:
        """A new recipe object.

        Raises:
            OracleUnsupported: an unknown recipe or field, or one whose result depends on random numbers.
        """
        try:
            settings(spec)
        except ValueError as error:
            raise OracleUnsupported(str(error)) from error
        return OracleRecipe(spec)

    def linear(
        self, in_features: int, out_features: int, *, bias: bool, dtype: torch.dtype, device: torch.device
    ) -> torch.nn.Module:
        """A float64 linear, whatever ``dtype`` says; layers are numbered in the order of their creation."""
        del dtype
        self._layers += 1  # a list of them would be a cycle: each layer knows its provider
        return OracleLinear(self, self._layers - 1, (out_features, in_features), bias, device)

    @contextmanager
    def _autocast(self, *, enabled: bool = True, recipe: OracleRecipe | None = None) -> Iterator[None]:
        spec = self._default if recipe is None else recipe.spec
        if enabled and spec is None:
            raise OracleUnsupported("the program enters a region with the library's default recipe")
        if not self._regions:
            self._first_is_free = True
        self._regions.append(_Region(spec if enabled else None))
        try:
            yield
        finally:
            self._regions.pop()
            self._first_is_free = self._first_is_free and bool(self._regions)
            if not self._regions and not self._in_backward:
                self.run.memories.update("input", "weight")

    @contextmanager
    def _calibrating_autocast(self, *, recipe: OracleRecipe) -> Iterator[None]:
        """A region in high precision that records amaxes of inputs and weights for ``recipe``, if that has a use."""
        with self._autocast(enabled=False):
            self._regions[-1] = replace(self._regions[-1], calibrates=recipe.spec)
            yield

    @contextmanager
    def _capturing_autocast(self, *, enabled: bool = True, recipe: OracleRecipe | None = None) -> Iterator[None]:
        """A region in which the skip flag, not the caller of a layer, says whether a kept weight stays."""
        with self._autocast(enabled=enabled, recipe=recipe):
            self._regions[-1] = replace(self._regions[-1], capturing=True)
            yield

    def _skip_weight_update(self, skip: bool, device: Any) -> None:
        del device
        self._skip = skip

    def _cached_linear(self, layer: OracleLinear, x: torch.Tensor, first: bool) -> torch.Tensor:
        """The layer with the weight that it kept; kept anew where it is the first micro-batch, or another recipe's."""
        region = self._regions[-1] if self._regions else _Region(None)
        if region.recipe is None:
            return layer(x)  # type: ignore[no-any-return]
        refresh = not self._skip if region.capturing else first
        known = self._kept.get(layer.layer)
        if refresh or known is None or known[0] != region.recipe:
            known = self._kept[layer.layer] = (region.recipe, layer.weight.detach().clone())
        return layer(x, known[1])  # type: ignore[no-any-return]

    def _claim_first(self) -> bool:
        """True for the first who asks in an outermost region, however deep inside; nobody gives it back."""
        first, self._first_is_free = self._first_is_free, False
        return first

    def forget(self) -> None:
        """Scales, amax histories and the skip flag as they are at first, as after the provider's ``reset``."""
        self.run.memories = type(self.run.memories)()
        self._skip = False

    def name_layers(self, model: torch.nn.Module) -> None:
        """Take the layers' names from the model, which equal those on the provider's side."""
        for name, module in model.named_modules():
            if isinstance(module, OracleLinear) and module.provider is self:
                self._names[module.layer] = name

    @property
    def layer_names(self) -> Collection[str]:
        """Names of the model's layers that are the oracle's."""
        return self._names.values()

    def begin_step(self, hints: Hints | None = None, noise: OperandNoise | None = None) -> None:
        """A new step; ``hints`` are the tap's records of the same step of the judged run, ``noise`` how far beyond the
        usual their sources may be from the oracle's tensors (harness.judge.oracle_noise)."""
        self._regions.clear()
        self._first_is_free = False
        self.engine = self.run
        self.run.begin(hints, noise or {})

    @contextmanager
    def backward_pass(self, output: torch.Tensor, gradient: torch.Tensor) -> Iterator[None]:
        """Around one backward of the running step, from ``output`` and its ``gradient`` on: forwards inside are
        recomputed; gradients' scales move after it, so that another pass over the same graph has new ones."""
        self._in_backward = True
        source = behind(output)
        self.run.begin_pass(None if source is None else (source, gradient))
        try:
            yield
        finally:
            self._in_backward = False
            self.run.memories.update("grad_output")

    @contextmanager
    def replaying(self, engine: Engine) -> Iterator[None]:
        """Linears inside are computed by ``engine``; scales and records of the run stay as they are."""
        self.engine = engine
        memories, self.run.memories = self.run.memories, type(self.run.memories)()
        try:
            yield
        finally:
            self.engine, self.run.memories = self.run, memories

    def call(
        self,
        layer: int,
        x: torch.Tensor,
        w: torch.Tensor,
        bias: torch.Tensor | None,
        trains: bool = True,
        source: Behind | None = None,
    ) -> tuple[torch.Tensor, int]:
        """A linear call of the program: result and site index. ``trains``, ``source`` (its ``behind``): as in Call."""
        region = self._regions[-1] if self._regions else _Region(None)
        name = self._names.get(layer, f"linear{layer}")
        call = Call(layer, name, region.recipe, trains, region.calibrates, source)
        if self._in_backward:
            return self.engine.recompute(call, x, w, bias)
        return self.engine.fprop(call, x, w, bias)

    @property
    def trace(self) -> tuple[TraceEntry, ...]:
        """The FP8 products of the running step, in order: the recipe that each op must have been given."""
        return tuple(self.run.trace)

    @property
    def fp8_products(self) -> int:
        """FP8 products of the running step, recomputations not counted."""
        return sum(entry.phase != "recompute" for entry in self.run.trace)
