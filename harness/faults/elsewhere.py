"""On which providers a seeded fault does anything. Planning asks: nothing here imports a fault, and torch with it."""

from collections.abc import Mapping

ONLY_REFERENCE = ("reference",)
_BOTH = ("reference", "transformer_engine")

# Faults that do something on other providers than the reference; Fault.providers of each says the same.
ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "bf16_backward": _BOTH,
    "bf16_products": _BOTH,
    "compilation_off": _BOTH,
    "counting_state": _BOTH,
    "dgrad_doubled": _BOTH,
    "disabled_setter": _BOTH,
    "exit_skipped_on_exception": _BOTH,
    "hang": _BOTH,
    "layer_disabled": _BOTH,
    "leaky_exit": _BOTH,
    "outer_recipe_inside": _BOTH,
    "planned_tap": _BOTH,
    "print_in_linear": _BOTH,
    "recipe_without_guard": _BOTH,
    "scale_doubled": _BOTH,
    "wrong_from_second_call": _BOTH,
    "wrong_unwatched": _BOTH,
}


def works_on(fault: str, provider: str) -> bool:
    """True where the registered ``fault`` breaks something of ``provider``."""
    return provider in ELSEWHERE.get(fault, ONLY_REFERENCE)
