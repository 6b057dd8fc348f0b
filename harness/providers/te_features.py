"""What Transformer Engine offers beyond the provider protocol, by name (harness.program.features_of)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from harness.providers import te_recipes, te_stack, te_support


def features() -> Mapping[str, Callable[..., Any]]:
    """The library's own functions under the harness's names. The module is found here, outside of traced code."""
    quantization = te_stack.module("pytorch.quantization")
    manager = quantization.FP8GlobalStateManager

    def first_module() -> bool:
        return manager.is_first_fp8_module()  # type: ignore[no-any-return]

    def support_check(recipe_name: str) -> tuple[bool, str]:
        question = getattr(quantization, te_support.QUESTIONS[recipe_name])
        answer: tuple[bool, str] = question(return_reason=True)
        return answer

    offered: dict[str, Callable[..., Any]] = {
        "first_module": first_module,
        "support_check": support_check,
        "recipe_keys": te_recipes.keys_of,
        "default_recipe": te_support.default_recipe,
    }
    checkpoint = getattr(te_stack.module("pytorch"), "checkpoint", None)
    if checkpoint is not None:
        offered["checkpoint"] = functools.partial(checkpoint, use_reentrant=False)  # the form that remembers
    return offered
