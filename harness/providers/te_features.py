"""What Transformer Engine offers beyond the provider protocol, by name (harness.program.features_of)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from harness.providers import te_recipes, te_stack, te_support


def _layers_claim_first(recipe_name: str) -> bool:
    """Layers ask for the first-module flag: the one that has it updates the gradients' scales (te_linear)."""
    return recipe_name == "delayed_scaling"


def features() -> Mapping[str, Callable[..., Any]]:
    """The library's own functions under the harness's names. The module is found here, outside of traced code."""
    quantization = te_stack.module("pytorch.quantization")
    manager = quantization.FP8GlobalStateManager

    def first_module() -> bool:
        return manager.is_first_fp8_module()  # type: ignore[no-any-return]

    def region_answers() -> tuple[bool, bool, Any]:
        return manager.is_fp8_enabled(), manager.is_fp8_calibration(), manager.get_fp8_group()

    def support_check(recipe_name: str) -> tuple[bool, str]:
        question = getattr(quantization, te_support.QUESTIONS[recipe_name])
        answer: tuple[bool, str] = question(return_reason=True)
        return answer

    autocast = te_stack.module("pytorch").autocast
    offered: dict[str, Callable[..., Any]] = {
        "first_module": first_module,
        "region_answers": region_answers,
        "support_check": support_check,
        "recipe_keys": te_recipes.keys_of,
        "default_recipe": te_support.default_recipe,
        "layers_claim_first": _layers_claim_first,
        # Support answers are kept for the process, in eager code as in compiled: no answers_follow_arch.
        # A generator's regions are decorators and can be entered once; those of a class (2.20) the other way about.
        "reusable_autocast" if isinstance(autocast, type) else "decorating_autocast": autocast,
    }
    checkpoint = getattr(te_stack.module("pytorch"), "checkpoint", None)
    if checkpoint is not None:
        offered["checkpoint"] = functools.partial(checkpoint, use_reentrant=False)  # the form that remembers
    return offered
