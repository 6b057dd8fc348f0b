"""Recipes: from a spec to Transformer Engine's own object, and from the text that an operator is given back to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.providers import te_stack
from harness.types import Scalar, Spec

# Roles and the attributes in which recipes of the per-tensor and block kind keep how a role is quantised.
_QPARAMS = ("fp8_quant_fwd_inp", "fp8_quant_fwd_weight", "fp8_quant_bwd_grad")
# Fields of other kinds that a spec may set.
_FLAGS = ("use_f32_scales", "disable_rht", "disable_stochastic_rounding", "disable_2d_quantization")


def _plain(name: str, value: Scalar, made: _Made) -> None:
    made.arguments[name] = value


def _format(name: str, value: Scalar, made: _Made) -> None:
    formats = te_stack.module("common.recipe").Format
    if value not in ("E4M3", "HYBRID"):
        raise ValueError(f"{name} is one of E4M3, HYBRID, not {value!r}")
    made.arguments[name] = formats[value]


def _quantised_with(name: str, value: Scalar, made: _Made) -> None:
    made.qparams[name] = value
    if name == "power_2_scale":
        made.arguments["use_power_2_scales"] = value


def _only(*allowed: Scalar) -> Callable[[str, Scalar, _Made], None]:
    def check(name: str, value: Scalar, made: _Made) -> None:
        if value not in allowed:
            given = ", ".join(map(str, allowed))
            raise ValueError(f"Transformer Engine has {name} {given} only, not {value!r}")

    return check


@dataclass
class _Made:
    """Constructor arguments, and changes to the quantisation parameters, which are no constructor arguments."""

    arguments: dict[str, Any]
    qparams: dict[str, Any]


_Setter = Callable[[str, Scalar, _Made], None]


@dataclass(frozen=True)
class _Kind:
    """``defaults``: what a spec that says nothing means where Transformer Engine's own default is another."""

    cls: str
    fields: Mapping[str, _Setter]
    defaults: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)


KINDS: Mapping[str, _Kind] = {
    "delayed_scaling": _Kind(
        "DelayedScaling",
        {"margin": _plain, "fp8_format": _format, "amax_history_len": _plain, "amax_compute_algo": _plain},
    ),
    "float8_current_scaling": _Kind(
        "Float8CurrentScaling",
        {"fp8_format": _format, "power_2_scale": _quantised_with, "amax_epsilon": _quantised_with},
    ),
    "float8_block_scaling": _Kind(
        "Float8BlockScaling",
        {"fp8_format": _format, "use_f32_scales": _plain, "amax_epsilon": _quantised_with},
    ),
    "mxfp8_block_scaling": _Kind("MXFP8BlockScaling", {"fp8_format": _format, "scale_rounding": _only("ceil")}),
    # The harness means NVFP4 without random numbers and signs unless a spec asks for them: they can't be compared.
    "nvfp4_block_scaling": _Kind(
        "NVFP4BlockScaling",
        {"disable_rht": _plain, "disable_stochastic_rounding": _plain, "disable_2d_quantization": _plain},
        {"disable_rht": True, "disable_stochastic_rounding": True},
    ),
}


def offered(name: str) -> str:
    """Why the library has no such recipe; empty when it has."""
    kind = KINDS.get(name)
    if kind is None:
        return f"Transformer Engine has no recipe for {name}"
    if not hasattr(te_stack.module("common.recipe"), kind.cls):
        return f"this Transformer Engine has no {kind.cls}"
    return ""


def make(spec: Spec) -> Any:
    """A new recipe object of Transformer Engine.

    Raises:
        ValueError: a recipe or field that Transformer Engine doesn't have, or a value that it can't take.
    """
    reason = offered(spec.name)
    if reason:
        raise ValueError(reason)
    kind = KINDS[spec.name]
    made = _Made({}, {})
    for name, value in {**kind.defaults, **spec.as_dict()}.items():
        if name not in kind.fields:
            known = ", ".join(kind.fields)
            raise ValueError(f"Transformer Engine's {kind.cls} has no field {name!r}; a spec may set {known}")
        kind.fields[name](name, value, made)
    try:
        recipe = getattr(te_stack.module("common.recipe"), kind.cls)(**made.arguments)
    except (AssertionError, TypeError) as error:
        raise ValueError(f"Transformer Engine refuses {spec.label}: {error}") from error
    if made.qparams:
        for attribute in _QPARAMS:
            setattr(recipe, attribute, dataclasses.replace(getattr(recipe, attribute), **made.qparams))
    return recipe


@dataclass(frozen=True)
class Known:
    """A recipe that operators may be given, and the label under which its products are reported."""

    recipe: Any
    label: str


# Text of a recipe -> the recipe. Operators take the text: a compiled graph bakes it in and guards on what made it.
_KNOWN: dict[str, Known] = {}


def remember(spec: Spec) -> None:
    """Let operators find the recipe of ``spec``. Of two labels for equal recipes the one asked for last is reported."""
    own = make(spec)  # never handed out, so nobody can change it
    _KNOWN[text_of(own)] = Known(own, spec.label)


def text_of(recipe: Any) -> str:
    """Transformer Engine's own text for a recipe, by which it tells recipes apart too, and what torch.compile needs to
    guard on. Traced.

    Where a class defines ``__repr__`` alone, as Transformer Engine's recipes do, Dynamo folds ``str(recipe)`` to a
    constant without a guard on any field: the graph of one recipe then runs for another of its class (torch 2.11 and
    2.13, mended in 2.14). So every field that a spec can set is read here once more, in ways that leave a guard.

    Transformer Engine's text leaves out how delayed scaling picks from its history (seen in 2.20.2): added too.
    """
    text = str(recipe)
    if recipe.delayed():  # never traced that far: it compiles nowhere
        return f"{text}, amax_compute_algo={recipe.amax_compute_algo}"
    if hasattr(recipe, "fp8_format"):
        text += " " + recipe.fp8_format.name
    for attribute in _QPARAMS:
        if hasattr(recipe, attribute):
            parameters = getattr(recipe, attribute)
            text += " 1" if parameters.power_2_scale else " 0"
            text += " " + parameters.amax_epsilon.hex()  # str() of a float can't be traced
    for flag in _FLAGS:
        if hasattr(recipe, flag):
            text += " 1" if getattr(recipe, flag) else " 0"
    return text


def keys_of(recipe: Any) -> tuple[str, ...]:
    """All texts by which recipes are told apart: the operators' and the one of Transformer Engine's own registers."""
    manager = te_stack.module("pytorch.quantization").FP8GlobalStateManager
    unique = getattr(manager, "get_unique_autocast_key", None)
    return (text_of(recipe), *(() if unique is None else (str(unique(recipe, None)),)))


def name_of(recipe: Any) -> str:
    """The harness's name of a recipe's class, else the class's own."""
    cls = type(recipe).__name__
    return next((name for name, kind in KINDS.items() if kind.cls == cls), cls)


def note(recipe: Any) -> str:
    """The text of ``recipe``, which operators can find from now on. Not for traced code."""
    text = text_of(recipe)
    if text not in _KNOWN:
        _KNOWN[text] = Known(recipe, name_of(recipe))
    return text


def known(text: str) -> Known:
    """The recipe that an operator was given.

    Raises:
        RuntimeError: one that neither :func:`remember` nor :func:`note` has seen: it was built inside compiled code.
    """
    if text not in _KNOWN:
        raise RuntimeError(f"an operator was given a recipe that no provider made: {text}")
    return _KNOWN[text]
