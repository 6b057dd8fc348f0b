"""The autocast region."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.fp8.recipe import Recipe
from harness.fp8.state import FP8GlobalStateManager


@contextmanager
def autocast(
    enabled: bool = True,
    calibrating: bool = False,
    recipe: Recipe | None = None,
    amax_reduction_group: Any = None,
    _graph: bool = False,
) -> Iterator[None]:
    """Run the FP8 modules inside in ``recipe`` (Transformer Engine's ``te.autocast``). Regions nest; each exit restores
    the state of its entry, also after an exception and after a reset inside.

    ``calibrating`` with ``enabled=False`` records amaxes for delayed scaling and computes in high precision.
    ``amax_reduction_group``: process group over which delayed scaling takes the largest amax.

    Raises:
        TypeError, UnsupportedRecipeError, DelayedScalingUnderCompileError: before anything is written.
    """
    outer = FP8GlobalStateManager.get_autocast_state()
    FP8GlobalStateManager.autocast_enter(
        enabled=enabled,
        calibrating=calibrating,
        fp8_recipe=recipe,
        fp8_group=amax_reduction_group,
        _graph=_graph,
    )
    try:
        yield
    finally:
        inner_first = FP8GlobalStateManager.quantization_state.is_first_fp8_module
        FP8GlobalStateManager.set_autocast_state(outer)
        if outer[-1] > 0 and not inner_first:
            # An inner region's exit doesn't give back a first-module claim (NVIDIA/TransformerEngine#3213).
            FP8GlobalStateManager.quantization_state.is_first_fp8_module = False
        FP8GlobalStateManager.autocast_exit(enabled, _graph=_graph)
