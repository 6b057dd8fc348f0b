"""Recipes: what is quantised how. Names and fields follow Transformer Engine's ``common.recipe``.

A recipe is a frozen dataclass, equal by value, and carries a canonical string, its ``key``, made when it is
constructed. Only the key travels into operators and guards: integer or float fields that change between calls would
become symbolic inside a trace, strings never do.
"""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from harness.fp8.formats import E4M3, E5M2, ElementFormat


class Format(enum.Enum):
    """FP8 formats of a recipe. HYBRID: E4M3 for input and weight, E5M2 for the output's gradient."""

    E4M3 = "E4M3"
    HYBRID = "HYBRID"

    @property
    def forward(self) -> ElementFormat:
        return E4M3

    @property
    def backward(self) -> ElementFormat:
        return E5M2 if self is Format.HYBRID else E4M3


@dataclass(frozen=True)
class Recipe:
    """Common part of all recipes.

    ``name`` is the name in matrices and labels. ``multiple``: every GEMM dimension must be divisible by it.
    """

    name: ClassVar[str] = ""
    multiple: ClassVar[int] = 16

    key: str = field(init=False, repr=False, compare=False, default="")

    def delayed(self) -> bool:
        """True when scales come from the history of earlier steps."""
        return self.name == "delayed_scaling"

    def _set_key(self, *values: tuple[str, str]) -> None:
        text = self.name + "(" + ",".join([name + "=" + value for name, value in values]) + ")"
        object.__setattr__(self, "key", text)


def _format(value: Format | str) -> Format:
    if isinstance(value, Format):
        return value
    for member in Format:
        if member.value == value:
            return member
    raise ValueError(f"fp8_format must be one of E4M3, HYBRID, got {value!r}")


def _flag(name: str, value: bool) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    raise ValueError(f"{name} must be true or false, got {value!r}")


def _integer(name: str, value: int, least: int | None = None) -> str:
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        bound = "" if least is None else f" of at least {least}"
        raise ValueError(f"{name} must be an integer{bound}, got {value!r}")
    return str(value)


def _epsilon(value: float) -> str:
    if not 0.0 <= value < float("inf"):
        raise ValueError(f"amax_epsilon must be finite and not negative, got {value!r}")
    return repr(float(value))


@dataclass(frozen=True)
class DelayedScaling(Recipe):
    """Per-tensor scales from a history of amaxes (arXiv:2209.05433, section 4). Eager only.

    Raises ValueError for a field out of range, as all recipes do.
    """

    name: ClassVar[str] = "delayed_scaling"

    margin: int = 0
    fp8_format: Format = Format.HYBRID
    amax_history_len: int = 1024
    amax_compute_algo: str = "max"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fp8_format", _format(self.fp8_format))
        if self.amax_compute_algo not in ("max", "most_recent"):
            raise ValueError(f"amax_compute_algo must be max or most_recent, got {self.amax_compute_algo!r}")
        self._set_key(
            ("amax_compute_algo", self.amax_compute_algo),
            ("amax_history_len", _integer("amax_history_len", self.amax_history_len, 1)),
            ("fp8_format", self.fp8_format.value),
            ("margin", _integer("margin", self.margin)),
        )


@dataclass(frozen=True)
class Float8CurrentScaling(Recipe):
    """One scale per tensor, from the tensor's own amax."""

    name: ClassVar[str] = "float8_current_scaling"

    fp8_format: Format = Format.HYBRID
    power_2_scale: bool = False
    amax_epsilon: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "fp8_format", _format(self.fp8_format))
        self._set_key(
            ("amax_epsilon", _epsilon(self.amax_epsilon)),
            ("fp8_format", self.fp8_format.value),
            ("power_2_scale", _flag("power_2_scale", self.power_2_scale)),
        )


@dataclass(frozen=True)
class Float8RowwiseScaling(Recipe):
    """One scale per row of each operand in reduction-last orientation (the rowwise recipe of torchao)."""

    name: ClassVar[str] = "float8_rowwise_scaling"

    fp8_format: Format = Format.E4M3
    power_2_scale: bool = False
    amax_epsilon: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "fp8_format", _format(self.fp8_format))
        self._set_key(
            ("amax_epsilon", _epsilon(self.amax_epsilon)),
            ("fp8_format", self.fp8_format.value),
            ("power_2_scale", _flag("power_2_scale", self.power_2_scale)),
        )


@dataclass(frozen=True)
class Float8BlockScaling(Recipe):
    """1x128 blocks for input and gradient, 128x128 for the weight (arXiv:2412.19437, section 3.3)."""

    name: ClassVar[str] = "float8_block_scaling"
    multiple: ClassVar[int] = 128

    fp8_format: Format = Format.E4M3
    use_f32_scales: bool = False
    amax_epsilon: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "fp8_format", _format(self.fp8_format))
        self._set_key(
            ("amax_epsilon", _epsilon(self.amax_epsilon)),
            ("fp8_format", self.fp8_format.value),
            ("use_f32_scales", _flag("use_f32_scales", self.use_f32_scales)),
        )


@dataclass(frozen=True)
class MXFP8BlockScaling(Recipe):
    """1x32 blocks with E8M0 scales (OCP Microscaling Formats v1.0).

    ``scale_rounding``: ``ceil`` takes the smallest power of two that keeps the block in range, ``floor`` is the
    specification's own rule, which may saturate.
    """

    name: ClassVar[str] = "mxfp8_block_scaling"
    multiple: ClassVar[int] = 32

    fp8_format: Format = Format.E4M3
    scale_rounding: str = "ceil"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fp8_format", _format(self.fp8_format))
        if self.scale_rounding not in ("ceil", "floor"):
            raise ValueError(f"scale_rounding must be ceil or floor, got {self.scale_rounding!r}")
        self._set_key(("fp8_format", self.fp8_format.value), ("scale_rounding", self.scale_rounding))


@dataclass(frozen=True)
class NVFP4BlockScaling(Recipe):
    """E2M1 elements, 1x16 blocks (weight 16x16) with E4M3 scales and one float32 scale per tensor (arXiv:2509.25149).

    The random Hadamard transform and stochastic rounding of that paper are not done here; asking for them raises.
    """

    name: ClassVar[str] = "nvfp4_block_scaling"

    disable_rht: bool = True
    disable_stochastic_rounding: bool = True
    disable_2d_quantization: bool = False

    def __post_init__(self) -> None:
        for wanted in ("disable_rht", "disable_stochastic_rounding"):
            if getattr(self, wanted) is not True:
                raise ValueError(f"{wanted} must be true: the reference system does not do what it disables")
        self._set_key(("disable_2d_quantization", _flag("disable_2d_quantization", self.disable_2d_quantization)))


RECIPE_CLASSES: dict[str, type[Recipe]] = {
    cls.name: cls
    for cls in (
        DelayedScaling,
        Float8CurrentScaling,
        Float8BlockScaling,
        MXFP8BlockScaling,
        NVFP4BlockScaling,
        Float8RowwiseScaling,
    )
}


def make_recipe(name: str, values: dict[str, Any]) -> Recipe:
    """A recipe by name and fields.

    Raises:
        ValueError: no such recipe, no such field, or a field out of range.
    """
    if name not in RECIPE_CLASSES:
        raise ValueError(f"unknown recipe {name!r}; known: {', '.join(sorted(RECIPE_CLASSES))}")
    cls = RECIPE_CLASSES[name]
    known = {item.name for item in fields(cls) if item.init}
    for wrong in sorted(set(values) - known):
        raise ValueError(f"recipe {name} has no field {wrong!r}; it has: {', '.join(sorted(known))}")
    return cls(**values)


def _parse_value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


@functools.cache
def recipe_from_key(key: str) -> Recipe:
    """The recipe that has this key. Called by operator implementations, never inside a trace."""
    name, _, rest = key.partition("(")
    pairs = [item.split("=", 1) for item in rest.rstrip(")").split(",") if item]
    return make_recipe(name, {field_name: _parse_value(text) for field_name, text in pairs})


def label_of(recipe: Recipe) -> str:
    """The recipe's name with the fields that differ from their defaults, sorted: ``delayed_scaling(margin=1)``."""
    default = type(recipe)()
    chosen = []
    for item in sorted(fields(recipe), key=lambda entry: entry.name):
        value = getattr(recipe, item.name)
        if not item.init or value == getattr(default, item.name):
            continue
        plain = value.value if isinstance(value, Format) else value
        chosen.append(f"{item.name}={str(plain).lower() if isinstance(plain, bool) else plain}")
    return f"{recipe.name}({','.join(chosen)})" if chosen else recipe.name
