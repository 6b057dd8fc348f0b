"""A recipe on an architecture that lacks it.

Where the provider says ``unsupported`` the cell is negative: entering must raise the documented error, eagerly and
compiled, before anything is written (harness.observe.unexecuted). On top of that the probes refuse the recipe with each
of its fields set, inside a region of a supported recipe (whose state must then be the one in force), by a context
object that was made before it is entered, as a decorator, and in a child process under ``python -O``, where every check
that was written as an assert is gone. Where the recipe is supported the same program must simply run.

Catches: a check after the first write, a refusal that leaves the outer region disturbed, a check that looks at a
recipe's defaults only, a check by assert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from cases.entry_refusals import attempt, without_asserts
from cases.recipe_fields import others_of
from cases.toy_linear import STEPS, linears_of, rows_of
from harness.observe.census import reset_compiler
from harness.observe.state import diff, provider_state
from harness.probing import Probing, documented
from harness.program import Case, CaseContext, Expects, Program
from harness.providers.protocol import Autocast
from harness.types import RECIPES, Evidence, Spec

CALLS = 2  # compiled: the second meets whatever the first one cached


def build(ctx: CaseContext) -> Program:
    """The cell's recipe, its partner inside, the cell's recipe again."""
    layers = linears_of(ctx, 3)
    outer, inner = ctx.axes.recipe, ctx.inner or ctx.axes.recipe
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, object], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[0](x)
            with autocast(enabled=True, recipe=recipes[1]):
                x = layers[1](x)
            return layers[2](x)  # type: ignore[no-any-return]

    return Program(
        model=layers,
        forward=forward,
        recipes=lambda: (ctx.provider.recipe(outer), ctx.provider.recipe(inner)),
        make_inputs=rows_of(ctx),
        expects=Expects((outer.label, inner.label, outer.label), steps=STEPS),
        probes=lambda probing: refusals(probing, [outer, inner]),
        probe_levels=(Evidence.NEGATIVE,),
    )


def refusals(probing: Probing, specs: list[Spec]) -> None:
    """Every way into the first of ``specs`` that the provider doesn't support must be refused alike."""
    provider, arch = probing.provider, probing.arch
    spec = next(spec for spec in specs if provider.supports(spec, arch).level == "unsupported")
    wanted = provider.supports(spec, arch).error
    group = [spec, *(other for _, other in others_of(provider, spec))]
    here = {}
    with probing.part("after every field was set"):
        for each in group:
            here[each] = attempt(provider, each)
            _as_documented(probing, each.label, here[each], wanted)
    # Compiled regions take it too, which delayed scaling would refuse for another reason.
    names = [name for name in RECIPES if name != "delayed_scaling"]
    allowed = [Spec(name) for name in names if provider.supports(Spec(name), arch).level != "unsupported"]
    for outer in allowed[:1]:
        with probing.part(f"after entering it in a region of {outer.label}"):
            _as_documented(probing, f"{spec.label} inside {outer.label}", attempt(provider, spec, outer), wanted)
        _compiled_inside(probing, spec, outer, wanted)
    _other_entries(probing, spec, wanted)
    children = without_asserts(provider, probing.axes.provider, tuple((arch, each) for each in group))
    for each, there in zip(group, children, strict=True):
        _as_documented(probing, f"python -O: {each.label}", there, wanted)
        probing.fact(f"python -O: text for {each.label}", here[each]["message"], there["message"])


def _as_documented(probing: Probing, what: str, came: Mapping[str, Any], wanted: str) -> None:
    """The documented class (or one derived from it), and no key of the state written."""
    seen = wanted if wanted in came["error"].split("<") else came["error"] or "no exception"
    probing.fact(f"{what}: refused by", wanted, seen)
    probing.fact(f"{what}: state written", [], came["changed"] + came["later"])


def _entering(autocast: Autocast) -> Callable[..., torch.Tensor]:
    def enter(outer: object, inner: object, x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=outer):
            x = x + 1
            with autocast(enabled=True, recipe=inner):
                return x + 1

    return enter


def _compiled_inside(probing: Probing, spec: Spec, outer: Spec, wanted: str) -> None:
    provider = probing.provider
    reset_compiler()
    enter = torch.compile(_entering(provider.autocast), backend="eager", fullgraph=probing.axes.fullgraph)
    for call in range(1, CALLS + 1):
        with probing.part(f"after entering it compiled in a region of {outer.label}"):
            with documented(wanted, "", f"compiled call {call} of {spec.label} inside {outer.label}"):
                enter(provider.recipe(outer), provider.recipe(spec), torch.ones(2))


def _other_entries(probing: Probing, spec: Spec, wanted: str) -> None:
    """The region as an object that is made first and entered later, and as a decorator."""
    provider = probing.provider
    recipe = provider.recipe(spec)

    def hoisted() -> None:
        region = provider.autocast(enabled=True, recipe=recipe)
        with region:
            pass

    def decorated() -> None:
        region: Any = provider.autocast(enabled=True, recipe=recipe)
        if not callable(region):  # not every context manager is a decorator; this one must be refused nevertheless
            hoisted()
        region(lambda: None)()

    for name, enter in (("hoisted", hoisted), ("as a decorator", decorated)):
        before = provider_state(provider)
        with probing.part(f"after the {name} region"), documented(wanted, "", f"{spec.label} {name}"):
            enter()
        changed = [item.key for item in diff(before, provider_state(provider), "")]
        probing.fact(f"{spec.label} {name}: state written", [], changed)


CASE = Case(
    name="unsupported_recipe",
    build=build,
    catches="a refusal that comes too late, not at all under python -O, or only at the recipe's default fields",
    answers=(
        "NVIDIA/TransformerEngine#2304",
        "NVIDIA/TransformerEngine#2759",
        "pytorch/pytorch#77869",
        "NVIDIA/TransformerEngine#3281",
    ),
)
