"""One compiled program, and from call to call another recipe of the same class: A, then A with one field changed
(each field that the provider has, in turn), then A again.

Catches: a graph or a layer that keeps the recipe of its first call; a guard that looks at a recipe's class and not at
its fields; a key that leaves a field out, so that two recipes share whatever is cached under it; a recipe that is
changed in place and from then on means one thing to the graph and another to the layer; a copied or pickled recipe that
is another one; values that no recipe has, and objects that are none (``recipe_refusals``).

Variants: ``inside`` (the recipe is an argument and its region stands in compiled code), ``around`` (the region is
opened around the compiled module), ``held`` (the module holds the recipe, the caller puts another in its place),
``mutated`` (one recipe object for all calls, changed in place; where the provider's recipes can't be changed, trying
must raise and change nothing).
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cases.recipe_fields import VALUES, makes, others_of, with_other
from cases.recipe_refusals import recipe_refusals
from cases.toy_linear import linears_of, rows_of
from harness.probing import Probing, documented
from harness.program import Case, CaseContext, Expects, Program, Step, StepExpects, features_of
from harness.providers.protocol import Provider
from harness.types import Axes, Evidence, Spec


class Holder(torch.nn.Module):
    """Two ToyLinears and, for the variant ``held``, the recipe that they run in."""

    def __init__(self, layers: torch.nn.ModuleList) -> None:
        super().__init__()
        self.layers = layers
        self.recipe: Any = None

    def chain(self, x: torch.Tensor) -> torch.Tensor:
        """x (M, K) through both layers."""
        return self.layers[1](self.layers[0](x))  # type: ignore[no-any-return]


def asks(provider: Provider, axes: Axes, arch: str) -> Mapping[str, Any]:
    """Which fields can be set to another value, and whether a recipe's first such field can be changed in place.

    ``refusal`` is the class name of the exception that changing raises, empty where it raises none.
    """
    fields = _fields(provider, axes.recipe, arch)
    told: dict[str, Any] = {"fields": tuple(fields), "refusal": ""}
    if axes.variant == "mutated":
        recipe, other = provider.recipe(axes.recipe), provider.recipe(with_other(axes.recipe, fields[0]))
        try:
            setattr(recipe, fields[0], getattr(other, fields[0]))
        except Exception as error:  # whatever a library raises for it: that it is raised each time is checked
            told["refusal"] = type(error).__name__
    return told


def _fields(provider: Provider, recipe: Spec, arch: str) -> list[str]:
    """Fields whose other value runs on ``arch`` as the recipe itself does (torch has no kernel for every format)."""
    level = provider.supports(recipe, arch).level
    return [field for field, other in others_of(provider, recipe) if provider.supports(other, arch).level == level]


def unavailable(provider: Provider, axes: Axes, arch: str) -> str:
    """There must be another recipe, and an attribute to change for the variant ``mutated``."""
    fields = _fields(provider, axes.recipe, arch)
    if not fields:
        return f"{provider.name} has no recipe that differs from {axes.recipe.label} in one field"
    if axes.variant == "mutated" and not hasattr(provider.recipe(axes.recipe), fields[0]):
        return f"recipes of {provider.name} have no attribute {fields[0]}"
    return ""


def _inside(ctx: CaseContext, model: Holder) -> Callable[..., torch.Tensor]:
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            return model.chain(x)

    return forward


def _around(ctx: CaseContext, model: Holder) -> Callable[..., torch.Tensor]:
    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        del recipes  # of the region that the caller has open
        return model.chain(x)

    return forward


def _held(ctx: CaseContext, model: Holder) -> Callable[..., torch.Tensor]:
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=model.recipe):
            return model.chain(x)

    return forward


# A provider may read a number of its recipe while it is traced. Once that has changed torch makes it a symbol, and the
# aot backends trace the frame a second time (TensorifyScalarRestartAnalysis): a graph too many, which nobody asked for.
SETTINGS = {"dynamo.specialize_float": True}

FORWARDS = {"inside": _inside, "around": _around, "held": _held, "mutated": _inside}


class _Mutating:
    """One recipe object for all steps, brought to each step's value by an assignment to one attribute."""

    def __init__(self, recipe: Any, field: str, refusal: str) -> None:
        self.recipe, self.field, self.refusal = recipe, field, refusal

    def become(self, wanted: Any) -> Any:
        """The held object after the assignment; unchanged, as it must be, where the library refuses it."""
        value = getattr(wanted, self.field)
        if not self.refusal:
            setattr(self.recipe, self.field, value)
            return self.recipe
        before = getattr(self.recipe, self.field)
        with documented(self.refusal, "", f"changing {self.field} of a recipe"):
            setattr(self.recipe, self.field, value)
        if getattr(self.recipe, self.field) != before:
            raise RuntimeError(f"{self.field} was refused with {self.refusal} and changed nevertheless")
        return self.recipe


def build(ctx: CaseContext) -> Program:
    """Two ToyLinears; which recipe each step has is ``walk``."""
    base, variant = ctx.axes.recipe, ctx.axes.variant
    fields, refusal = ctx.told["fields"], ctx.told["refusal"]
    changed = fields if variant in ("inside", "around") else fields[:1]
    specs = [base, *(with_other(base, field) for field in changed)]
    walk = [*range(len(specs)), 0]  # A, each of the others, A
    model = Holder(linears_of(ctx, 2))
    mutating = _Mutating(ctx.provider.recipe(base), fields[0], refusal)

    def drive(step: Step) -> torch.Tensor:
        recipe = step.recipes[walk[step.index % len(walk)]]
        if variant == "around":
            with ctx.provider.autocast(enabled=True, recipe=recipe):
                return step.forward((), *step.inputs)
        if variant == "held":
            model.recipe = recipe
        if variant == "mutated":
            # Nothing is changed on the oracle: it enters an equal recipe.
            plain = step.recipes[0] if refusal else recipe
            recipe = plain if step.provider is None else mutating.become(recipe)
        return step.forward((recipe,), *step.inputs)

    ran = [specs[0 if refusal else position] for position in walk]
    distinct = len(set(ran))
    return Program(
        model=model,
        forward=FORWARDS[variant](ctx, model),
        recipes=lambda: tuple(ctx.provider.recipe(spec) for spec in specs),
        make_inputs=rows_of(ctx),
        drive=drive,
        settings=SETTINGS,
        probes=_probes(ctx),
        probe_levels=(Evidence.NATIVE, Evidence.EMULATED, Evidence.TRACED),
        expects=Expects(
            schedule=tuple(StepExpects((spec.label,) * 2) for spec in ran),
            steps=len(walk),
            graphs=distinct,
            recompiles=distinct - 1,
        ),
    )


def _probes(ctx: CaseContext) -> Callable[[Probing], None] | None:
    if "recipe_keys" not in features_of(ctx.provider):
        return None

    def probes(probing: Probing) -> None:
        keys_differ(probing)
        if ctx.axes.variant == "inside":
            recipe_refusals(probing, ctx)

    return probes


def keys_differ(probing: Probing) -> None:
    """No two recipes that differ in a field share a key, and two equal ones always do, a copy and a pickled one too:
    every field of every recipe.

    ``recipe_keys(recipe)`` of the provider: the texts by which it tells recipes apart, each of which must be enough.
    """
    provider = probing.provider
    keys_of = features_of(provider)["recipe_keys"]
    seen: list[dict[str, str]] = []
    for name in VALUES:
        base = Spec(name)
        if not makes(provider, base):
            continue
        group = [base, *(other for _, other in others_of(provider, base, computable=False))]
        shared, unequal, lost = [], [], []
        for spec in group:
            keys = tuple(keys_of(provider.recipe(spec)))
            if keys != tuple(keys_of(provider.recipe(spec))):
                unequal.append(spec.label)
            lost += [f"{spec.label} by {how}" for how in _copies_unlike(provider.recipe(spec), keys_of)]
            seen += [{} for _ in keys[len(seen) :]]
            shared += [f"{spec.label} = {at[key]}" for at, key in zip(seen, keys, strict=False) if key in at]
            for at, key in zip(seen, keys, strict=False):
                at[key] = spec.label
        probing.fact(f"{name}: of {len(group)} recipes those that share a key", [], shared)
        probing.fact(f"{name}: of {len(group)} recipes those unequal to themselves", [], unequal)
        probing.fact(f"{name}: of {len(group)} recipes those unlike a copy of theirs", [], lost)


COPIES: Mapping[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda recipe: pickle.loads(pickle.dumps(recipe)),  # torch.save and worker processes do the same
}


def _copies_unlike(recipe: Any, keys_of: Callable[[Any], Sequence[str]]) -> list[str]:
    """The ways of copying that make another recipe: one that is told apart from it, or that shows other fields."""
    copies = {how: make(recipe) for how, make in COPIES.items()}
    wanted = tuple(keys_of(recipe)), repr(recipe)
    return [how for how, made in copies.items() if (tuple(keys_of(made)), repr(made)) != wanted]


CASE = Case(
    name="recipe_switch",
    build=build,
    catches="a graph, layer or cache that goes on with another recipe of the same class, told apart by one field alone",
    answers=(
        "pytorch/pytorch#176851",
        "pytorch/pytorch#128437",
        "NVIDIA/TransformerEngine#3130",
        "NVIDIA/TransformerEngine#2620",
        "vllm-project/vllm#53366",
    ),
    unavailable=unavailable,
    asks=asks,
)
