"""Which module is the first of a region: the flag that one module claims, and nobody after it (delayed scaling counts
its updates by it).

Catches: a claim that is given back when a nested region ends, or that a recompute takes a second time; a flag left
behind by a region that an exception ended; a checkpointed layer that is first in forward and not in its recompute.

Each layer asks for the flag and doubles its input if it is the first (a power of two: exact in every dtype), so that
numbers tell who was. On the judge's oracle the rule is its own: one claim in an outermost region, however deep inside.

Graphs are part of the expectation. A region inside of what is compiled is one setting, hence one graph: the flag is
written and read while tracing. A module that is compiled by itself finds it set or taken: two graphs for one recipe,
and no third.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from cases.toy_linear import HISTORY_STEPS, STEPS, linears_of, rows_of
from harness import torch_compat
from harness.probing import Probing
from harness.program import Case, CaseContext, Expects, Program, Step, StepExpects, features_of, lacks
from harness.providers.protocol import Provider
from harness.types import Axes, Evidence

Forward = Callable[..., torch.Tensor]


class _Raised(Exception):
    """What ends a region."""


@dataclass(frozen=True)
class _Parts:
    """What the programs are made of. ``layer(i, x)`` runs layer i, which asks for the flag."""

    ctx: CaseContext
    layers: torch.nn.ModuleList
    layer: Callable[[int, torch.Tensor], torch.Tensor]

    @property
    def labels(self) -> tuple[str, str]:
        return self.ctx.axes.recipe.label, (self.ctx.inner or self.ctx.axes.recipe).label

    def program(self, forward: Forward, expects: Expects, **around: Any) -> Program:
        """The program of a variant; ``around`` are further fields of it."""
        outer, inner = self.ctx.axes.recipe, self.ctx.inner or self.ctx.axes.recipe
        return Program(
            model=self.layers,
            forward=forward,
            recipes=lambda: (self.ctx.provider.recipe(outer), self.ctx.provider.recipe(inner)),
            make_inputs=rows_of(self.ctx),
            expects=expects,
            probes=claims,
            # What is asked of the flag needs no kernel.
            probe_levels=(Evidence.NATIVE, Evidence.EMULATED, Evidence.TRACED),
            **around,
        )

    @property
    def steps(self) -> int:
        return HISTORY_STEPS if self.ctx.axes.recipe.name == "delayed_scaling" else STEPS


def _parts(ctx: CaseContext, count: int) -> _Parts:
    layers = linears_of(ctx, count)
    first_module = features_of(ctx.provider)["first_module"]

    def layer(index: int, x: torch.Tensor) -> torch.Tensor:
        if first_module():
            x = x * 2
        return layers[index](x)  # type: ignore[no-any-return]

    return _Parts(ctx, layers, layer)


def _nested(ctx: CaseContext) -> Program:
    """The outer region's module is the first; the inner region has none of its own."""
    p, autocast = _parts(ctx, 3), ctx.provider.autocast

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = p.layer(0, x)
            with autocast(enabled=True, recipe=recipes[1]):
                x = p.layer(1, x)
            return p.layer(2, x)

    outer, inner = p.labels
    return p.program(forward, Expects((outer, inner, outer), steps=p.steps))


def _inner_first(ctx: CaseContext) -> Program:
    """A module of the inner region claims; the exit of that region gives nothing back."""
    p, autocast = _parts(ctx, 3), ctx.provider.autocast

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            with autocast(enabled=True, recipe=recipes[1]):
                x = p.layer(0, x)
            x = p.layer(1, x)
            with autocast(enabled=False):
                x = p.layer(2, x)
        return x

    outer, inner = p.labels
    return p.program(forward, Expects((inner, outer), steps=p.steps))


def _sequential(ctx: CaseContext) -> Program:
    """Each of two regions has a first module; what runs between them is none."""
    p, autocast = _parts(ctx, 3), ctx.provider.autocast

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = p.layer(0, x)
        x = p.layer(1, x)
        with autocast(enabled=True, recipe=recipes[1]):
            return p.layer(2, x)

    outer, inner = p.labels
    return p.program(forward, Expects((outer, inner), steps=p.steps))


def _outside(ctx: CaseContext) -> Program:
    """The region is around a compiled module that is called twice in it: a graph for the first call, one for the
    rest."""
    p, autocast = _parts(ctx, 1), ctx.provider.autocast

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        del recipes
        return p.layer(0, x)

    def drive(step: Step) -> torch.Tensor:
        with autocast(enabled=True, recipe=step.recipes[0]):
            first = step.forward(step.recipes, *step.inputs)
            return first + step.forward(step.recipes, *step.inputs)

    return p.program(forward, _two_graphs(p, (p.labels[0],) * 2), drive=drive)


def _exception(ctx: CaseContext) -> Program:
    """Exceptions end regions before and after a claim: the first kind takes nothing along, the second gives nothing
    back, and no flag is left outside."""
    p, autocast = _parts(ctx, 1), ctx.provider.autocast

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        del recipes
        return p.layer(0, x)

    def drive(step: Step) -> torch.Tensor:
        outer, inner = step.recipes
        try:
            with autocast(enabled=True, recipe=outer):
                raise _Raised
        except _Raised:
            step.unchanged("after an exception before any claim")
        total = torch.zeros((), device=step.inputs[0].device)
        with autocast(enabled=True, recipe=outer):
            try:
                with autocast(enabled=True, recipe=inner):
                    raise _Raised
            except _Raised:
                total = total + step.forward(step.recipes, *step.inputs)  # still free: this one is the first
            try:
                with autocast(enabled=True, recipe=outer):
                    raise _Raised
            except _Raised:
                total = total + step.forward(step.recipes, *step.inputs)  # taken
        step.unchanged("after exceptions around a claim")
        return total

    return p.program(forward, _two_graphs(p, (p.labels[0],) * 2), drive=drive)


def _two_graphs(p: _Parts, labels: tuple[str, ...]) -> Expects:
    """One recipe, the flag free and the flag taken."""
    return Expects(labels, graphs=2, recompiles=1, steps=p.steps)


def _recompute(ctx: CaseContext) -> Program:
    """The first module is checkpointed and runs again in backward, which another open region is around.

    In its recompute it is first again, or the doubled input that the weight's gradient needs is lost; and it takes
    nothing from the region that is open then.
    """
    p, autocast = _parts(ctx, 2), ctx.provider.autocast
    checkpoint, first_module = (features_of(ctx.provider)[name] for name in ("checkpoint", "first_module"))

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = checkpoint(p.layer, 0, x)
            return p.layer(1, x)

    def around_backward(step: Step, backward: Callable[[], None]) -> None:
        with autocast(enabled=True, recipe=step.recipes[0]):
            backward()
            if not first_module():
                raise RuntimeError("the recompute took the first-module claim of the region around backward")

    outer = p.labels[0]
    # No recompute is dead: the second layer's backward needs what the checkpointed one gave it.
    stated = StepExpects((outer, outer), recompute=(outer,))
    compiled = stated
    if ctx.axes.backend == "eager" and not torch_compat.eager_backend_recomputes():
        compiled = StepExpects((outer, outer))
    return p.program(
        forward,
        Expects(schedule=(stated,), compiled_schedule=(compiled,), steps=p.steps),
        around_backward=around_backward,
        # The claim is a side effect of the checkpointed body; without this Dynamo refuses it (HOP: unsafe side effect).
        settings={"dynamo.skip_fwd_side_effects_in_bwd_under_checkpoint": True},
    )


def claims(probing: Probing) -> None:
    """The flag's whole sequence without any layer, eagerly: who asks is told by the order of the answers."""
    autocast, ask = probing.provider.autocast, features_of(probing.provider)["first_module"]
    recipe = probing.provider.recipe(probing.axes.recipe)
    with probing.part("after the claims"):
        before = ask()
        with autocast(enabled=True, recipe=recipe):
            with autocast(enabled=True, recipe=recipe):
                inside = [ask(), ask()]
            with autocast(enabled=False):
                after = [ask()]
            after.append(ask())
        with autocast(enabled=True, recipe=recipe):
            second = [ask(), ask()]
        probing.fact("a claim outside of any region", False, before)
        probing.fact("claims in a nested region that is entered first", [True, False], inside)
        probing.fact("claims after that region, in a disabled one and outside it", [False, False], after)
        probing.fact("claims in the next region", [True, False], second)
        probing.fact("a claim after all of them", False, ask())


_BUILD: dict[str, Callable[[CaseContext], Program]] = {
    "nested": _nested,
    "inner_first": _inner_first,
    "sequential": _sequential,
    "outside": _outside,
    "exception": _exception,
    "recompute": _recompute,
}


def build(ctx: CaseContext) -> Program:
    """The program of ``ctx.axes.variant``."""
    return _BUILD[ctx.axes.variant](ctx)


def unavailable(provider: Provider, axes: Axes, arch: str) -> str:
    """A provider must let its flag be asked for; ``recompute`` needs its checkpoint too.

    Where its own layers ask (feature ``layers_claim_first``), the program would take the claim from them, and their
    scales would stand still as asked for.
    """
    del arch
    claims_itself = features_of(provider).get("layers_claim_first")
    if claims_itself is not None and claims_itself(axes.recipe.name):
        return f"layers of {provider.name} ask for the flag themselves under {axes.recipe.name}"
    needed = ("first_module", "checkpoint") if axes.variant == "recompute" else ("first_module",)
    return lacks(provider, *needed)


CASE = Case(
    name="first_module",
    build=build,
    catches="a first-module claim that is given back, taken twice, or left behind",
    answers=("NVIDIA/TransformerEngine#187", "NVIDIA/TransformerEngine#3213", "NVIDIA/TransformerEngine#1190"),
    unavailable=unavailable,
)
