"""What Transformer Engine believes it can run, asked through its own check functions, here or as another GPU."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from harness.providers import te_recipes, te_stack
from harness.providers.protocol import Support
from harness.run.host import host_arch
from harness.types import Spec

# Recipe -> the public question that Transformer Engine answers about it, with a reason.
QUESTIONS: Mapping[str, str] = {
    "delayed_scaling": "is_fp8_available",
    "float8_current_scaling": "is_fp8_available",
    "float8_block_scaling": "is_fp8_block_scaling_available",
    "mxfp8_block_scaling": "is_mxfp8_available",
    "nvfp4_block_scaling": "is_nvfp4_available",
}

# The library's one query of the current device; its checks, and through them every belief, rest on it.
_QUERY = "get_device_compute_capability"
# Functions that ask torch directly are recognised by these names in their code: their caches go stale with a pretence.
_QUERIES = frozenset({_QUERY, "get_device_capability", "get_device_properties"})
_MODULE_CACHE_SUFFIX = "_SUPPORT"  # quantization._FP8_SUPPORT and its siblings

_CACHED = type(functools.lru_cache(maxsize=1)(lambda: None))

_pretended: list[str] = []


def supports(recipe: Spec, arch: str) -> Support:
    """The library's belief. What it doesn't support must raise RuntimeError on entry, as ``check_recipe_support``
    does."""
    absent = te_recipes.offered(recipe.name)
    if absent:
        return Support("unsupported", absent, offered=False)
    if arch == "cpu":
        return Support("unsupported", "Transformer Engine needs a CUDA device", offered=False)
    if arch != (_pretended[-1] if _pretended else host_arch()):
        with pretend(arch):
            return _asked(recipe)
    return _asked(recipe)


def _asked(recipe: Spec) -> Support:
    question = getattr(te_stack.module("pytorch.quantization"), QUESTIONS[recipe.name], None)
    if question is None:
        return Support("unsupported", f"this Transformer Engine has no {QUESTIONS[recipe.name]}", offered=False)
    available, reason = question(return_reason=True)
    return Support("native") if available else Support("unsupported", reason)


def default_recipe(arch: str) -> Spec:
    """The recipe of a region that names none, on ``arch``, as the library chooses it.

    A function of the library or a method of its manager: versions differ.
    """
    if arch != (_pretended[-1] if _pretended else host_arch()):
        with pretend(arch):
            return default_recipe(arch)
    quantization = te_stack.module("pytorch.quantization")
    owner = quantization if hasattr(quantization, "get_default_fp8_recipe") else quantization.FP8GlobalStateManager
    return Spec(te_recipes.name_of(owner.get_default_fp8_recipe()))


@contextmanager
def pretend(arch: str) -> Iterator[None]:
    """Every capability query of the library answers as ``arch`` (``smNN``) would; what was cached is forgotten on the
    way in and on the way out.

    The register of recipes starts empty, as in a process that has entered no region: whether the first compilation of a
    recipe grows it must not depend on what ran before. What it held comes back.

    ``cpu`` is no architecture of this library: its queries keep answering for the GPU that is there.

    Raises:
        ValueError: not an architecture.
    """
    capability = None if arch == "cpu" else capability_of(arch)
    _pretended.append(arch)
    undo = [] if capability is None else _answer(capability)
    forget()
    register = te_stack.module("pytorch.quantization").FP8GlobalStateManager.quantization_state.autocast_arguments
    held = dict(register)
    register.clear()
    try:
        yield
    finally:
        register.clear()
        register.update(held)
        for holder, original in undo:
            setattr(holder, _QUERY, original)
        _pretended.pop()
        forget()


def pretended() -> str:
    """The architecture that is pretended now, or an empty text."""
    return _pretended[-1] if _pretended else ""


def capability_of(arch: str) -> tuple[int, int]:
    """``sm103`` as (10, 3).

    Raises:
        ValueError: not an architecture.
    """
    digits = arch[2:]
    if not arch.startswith("sm") or not digits.isdigit() or len(digits) < 2:
        raise ValueError(f"not an architecture: {arch!r} (expected smNN, such as sm90)")
    return int(digits[:-1]), int(digits[-1])


def _answer(capability: tuple[int, int]) -> list[tuple[Any, Any]]:
    """Put a fixed answer wherever a module of the library holds the query; returns what to put back."""
    undo = []
    for module in modules():
        original = vars(module).get(_QUERY)
        if callable(original):
            undo.append((module, original))
            setattr(module, _QUERY, functools.wraps(original)(lambda: capability))
    return undo


def forget() -> None:
    """Empty every cache of the library that holds an answer about the device."""
    for module in modules():
        for name, value in list(vars(module).items()):
            if name.startswith("_") and name.endswith(_MODULE_CACHE_SUFFIX) and isinstance(value, tuple):
                setattr(module, name, None)
            elif asks_device(value):
                value.cache_clear()


def asks_device(value: Any) -> bool:
    """True for a cached function whose code asks what the device can do."""
    if not isinstance(value, _CACHED):
        return False
    return bool(_QUERIES & set(getattr(getattr(value.__wrapped__, "__code__", None), "co_names", ())))


def modules() -> list[Any]:
    """The library's modules that are imported so far."""
    loaded = list(sys.modules.items())
    return [module for name, module in loaded if module and name.partition(".")[0] == "transformer_engine"]
