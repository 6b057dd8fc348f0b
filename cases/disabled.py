"""Regions that switch FP8 off: ``autocast(enabled=False)``, alone, inside an enabled region and around one.

Catches: a disabled region that builds or checks a recipe that nothing will use (a finding of the review of
NVIDIA/TransformerEngine#2759: building one breaks the graph), one that leaves FP8 on inside or off behind it, one whose
state differs from no region at all, so that it costs a graph of its own; and what a region inside of others puts back
beside that: calibration, group, graph capture, depth (``inner_exits``); what the library says of a region to who asks
(``region_answers``); and a limit to how deep regions may be.

Variants: ``before`` (a disabled region, then an enabled one), ``inside`` (enabled, disabled in it, enabled with another
recipe in that), ``around`` (the same opened around a compiled module, from call to call), ``given`` (disabled regions
that name a recipe, as ``autocast(enabled=flag, recipe=recipe)`` does), ``twelve`` (as many regions inside each other,
by turns in one recipe, in the other, and off; the three deepest and the three outermost run a layer on the way out).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from cases.inner_exits import inner_exits
from cases.region_answers import region_answers
from cases.toy_linear import STEPS, Layers, bare, linears_of, rows_of
from harness.observe.census import reset_compiler
from harness.probing import Probing
from harness.program import Case, CaseContext, Expects, Program, Step, StepExpects
from harness.providers.protocol import Autocast
from harness.types import RECIPES, Evidence, Spec

# The depth of ``twelve``. Settings repeat after three regions: none equals the one 1, 2, 4, 8 or 10 regions away.
DEEP = 12
CYCLE = "oi-"

Forward = Callable[..., torch.Tensor]

# Regions around the compiled module, outermost first, step by step: outer, inner or off. The first one has FP8, so that
# a recipe which compiles nowhere is refused in the first call. Settings that end on the same region share a graph.
AROUND: tuple[tuple[str, ...], ...] = (
    ("outer",),
    ("off",),
    ("outer", "off"),
    ("outer", "off", "inner"),
    (),
    ("off", "outer"),
)


def _before(autocast: Autocast, layers: Layers) -> Forward:
    def forward(recipes: tuple[object, object], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=False):
            x = layers[0](x)
        with autocast(enabled=True, recipe=recipes[0]):
            return layers[1](x)  # type: ignore[no-any-return]

    return forward


def _inside(autocast: Autocast, layers: Layers) -> Forward:
    def forward(recipes: tuple[object, object], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[0](x)
            with autocast(enabled=False, recipe=None):
                x = layers[1](x)
                with autocast(enabled=True, recipe=recipes[1]):
                    x = layers[2](x)
                x = layers[3](x)
            return layers[4](x)  # type: ignore[no-any-return]

    return forward


def _given(autocast: Autocast, layers: Layers) -> Forward:
    def forward(recipes: tuple[object, object], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=False, recipe=recipes[0]):
            x = layers[0](x)
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[1](x)
            with autocast(enabled=False, recipe=recipes[0]):
                return layers[2](x)  # type: ignore[no-any-return]

    return forward


def _twelve(autocast: Autocast, layers: Layers) -> Forward:
    def nest(level: int, recipes: tuple[object, object], x: torch.Tensor) -> torch.Tensor:
        if level == DEEP:
            return x
        owner = CYCLE[level % 3]
        with autocast(enabled=owner != "-", recipe=recipes["oi".index(owner)] if owner != "-" else None):
            x = nest(level + 1, recipes, x)
            if level >= DEEP - 3:
                return layers[DEEP - 1 - level](x)  # type: ignore[no-any-return]
            return layers[5 - level](x) if level < 3 else x

    return lambda recipes, x: nest(0, recipes, x)


def _bare(autocast: Autocast, layers: Layers) -> Forward:
    del autocast  # the caller's regions

    return bare(layers)


# Per variant: the program, and for each layer whose recipe it has: outer, inner or none; ``around`` states it by step.
PROGRAMS: dict[str, tuple[Callable[[Autocast, Layers], Forward], str]] = {
    "before": (_before, "-o"),
    "inside": (_inside, "o-i-o"),
    "given": (_given, "-o-"),
    "twelve": (_twelve, "-io-io"),
    "around": (_bare, "--"),
}


def build(ctx: CaseContext) -> Program:
    """The program of ``ctx.axes.variant``."""
    make_forward, owners = PROGRAMS[ctx.axes.variant]
    layers = linears_of(ctx, len(owners))
    outer, inner = ctx.axes.recipe, ctx.inner or ctx.axes.recipe
    labels = {"o": outer.label, "i": inner.label}
    around = ctx.axes.variant == "around"

    def drive(step: Step) -> torch.Tensor:
        recipes = {"outer": step.recipes[0], "inner": step.recipes[1]}
        with ExitStack() as regions:
            for name in AROUND[step.index % len(AROUND)] if around else ():
                regions.enter_context(ctx.provider.autocast(enabled=name != "off", recipe=recipes.get(name)))
            return step.forward(step.recipes, *step.inputs)

    expects = Expects(tuple(labels[owner] for owner in owners if owner != "-"), steps=STEPS)
    return Program(
        model=layers,
        forward=make_forward(ctx.provider.autocast, layers),
        recipes=lambda: (ctx.provider.recipe(outer), ctx.provider.recipe(inner)),
        make_inputs=rows_of(ctx),
        drive=drive,
        expects=_around_expects({"outer": outer.label, "inner": inner.label}) if around else expects,
        probes=_probes(ctx),
        probe_levels=(Evidence.NATIVE, Evidence.EMULATED, Evidence.TRACED, Evidence.NEGATIVE),
    )


def _probes(ctx: CaseContext) -> Callable[[Probing], None]:
    exits, answers = inner_exits(ctx), region_answers(ctx)

    def probes(probing: Probing) -> None:
        builds_and_checks_nothing(probing)
        if ctx.axes.variant == "inside" and probing.evidence is not Evidence.NEGATIVE:  # its regions can be entered
            exits(probing)
            answers(probing)
        if ctx.axes.variant == "twelve" and probing.evidence is not Evidence.NEGATIVE:
            every_level_is_put_back(probing, ctx)

    return probes


def every_level_is_put_back(probing: Probing, ctx: CaseContext) -> None:
    """The state at each depth, after the region inside has been left, is that of before; outside of all too."""
    owners = {"o": ctx.axes.recipe, "i": ctx.inner or ctx.axes.recipe}
    with probing.part(f"outside of {DEEP} regions"), ExitStack() as regions:
        for level in range(DEEP):
            owner = owners.get(CYCLE[level % 3])
            recipe = ctx.provider.recipe(owner) if owner is not None else None
            regions.enter_context(probing.provider.autocast(enabled=owner is not None, recipe=recipe))
            regions.enter_context(probing.part(f"in region {level + 1} of {DEEP}"))


def _around_expects(labels: dict[str, str]) -> Expects:
    """Both layers run in the innermost region's recipe; one graph for each recipe and one for none."""
    innermost = [labels.get(regions[-1] if regions else "off") for regions in AROUND]
    graphs = len(set(innermost))
    return Expects(
        schedule=tuple(StepExpects((label,) * 2 if label else ()) for label in innermost),
        steps=len(AROUND),
        graphs=graphs,
        recompiles=graphs - 1,
    )


def builds_and_checks_nothing(probing: Probing) -> None:
    """No recipe is built in a disabled region, and none that is named there is looked at."""
    recipes = {}
    for name in RECIPES:
        spec = Spec(name)
        if probing.provider.supports(spec, probing.arch).offered:
            recipes[name] = probing.provider.recipe(spec)
    autocast = probing.provider.autocast

    def disabled(recipe: Any, x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=False, recipe=recipe), autocast(enabled=False):
            return x + 1

    reset_compiler()
    compiled = torch.compile(disabled, backend="eager", fullgraph=probing.axes.fullgraph)
    # Eager alone: what Dynamo constructs while it traces calls no constructor. There, that it compiles is the fact.
    with probing.part("after a disabled region without a recipe"), constructions(list(recipes.values())) as built:
        disabled(None, torch.ones(2))
    probing.fact("recipes built for a disabled region", [], built)
    for how, forward in (("eager", disabled), ("compiled", compiled)):
        probing.fact(f"recipes refused in a disabled region, {how}", {}, _refused(probing, forward, recipes))


def _refused(probing: Probing, forward: Forward, recipes: dict[str, Any]) -> dict[str, str]:
    """Class names of what a disabled region raises, by the recipe that it names: unsupported ones, delayed scaling."""
    refused = {}
    with probing.part("after disabled regions that name recipes"):
        for name, recipe in {"none": None, **recipes}.items():
            try:
                forward(recipe, torch.ones(2))
            except Exception as error:  # whichever: it becomes the fact
                refused[name] = type(error).__name__
    return refused


@contextmanager
def constructions(recipes: Sequence[Any]) -> Iterator[list[str]]:
    """Class names of the recipes that are constructed inside, by whatever name or path: of every class that shares a
    base class with one of ``recipes``."""
    built: list[str] = []
    classes = {cls for recipe in recipes for cls in _family(type(recipe).__mro__[-2])}
    before = [(cls, vars(cls)["__init__"]) for cls in classes if "__init__" in vars(cls)]
    try:
        for cls, original in before:
            setattr(cls, "__init__", _noting(original, built))  # noqa: B010  (mypy takes no assignment to __init__)
        yield built
    finally:
        for cls, original in before:
            setattr(cls, "__init__", original)  # noqa: B010


def _family(cls: type) -> set[type]:
    found = {cls}
    children: list[type] = cls.__subclasses__()
    for child in children:
        found |= _family(child)
    return found


def _noting(original: Callable[..., None], built: list[str]) -> Callable[..., None]:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        built.append(type(self).__name__)
        original(self, *args, **kwargs)

    return init


CASE = Case(
    name="disabled",
    build=build,
    catches=(
        "a disabled region that builds or checks a recipe, leaves FP8 on, or costs a graph of its own; an inner region "
        "that puts back less than the outer one set; a wrong answer about the region"
    ),
    answers=("NVIDIA/TransformerEngine#2759", "NVIDIA/TransformerEngine#187"),
)
