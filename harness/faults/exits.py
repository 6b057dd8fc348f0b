"""What the faults of a region's exit share: the reference's region, which puts back something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harness.faults.patching import autocast_fault

if TYPE_CHECKING:
    from harness.fp8.state import AutocastState
    from harness.providers.protocol import Provider

Restored = Callable[["AutocastState", "AutocastState"], "AutocastState"]


def inner_exit_fault(restored: Restored) -> Callable[[Provider], Any]:
    """An ``apply`` for a fault of the exits of inner regions: they put back ``restored(outer, inner)``, of the state
    before the region and the state in it. The outermost region's exit is right, so that nothing is left behind."""

    @contextmanager
    def autocast(
        enabled: bool = True,
        calibrating: bool = False,
        recipe: Any = None,
        amax_reduction_group: Any = None,
        _graph: bool = False,
    ) -> Iterator[None]:
        from harness.fp8 import FP8GlobalStateManager

        outer = FP8GlobalStateManager.get_autocast_state()
        FP8GlobalStateManager.autocast_enter(enabled, calibrating, recipe, amax_reduction_group, _graph)
        try:
            yield
        finally:
            inner = FP8GlobalStateManager.get_autocast_state()
            FP8GlobalStateManager.set_autocast_state(restored(outer, inner) if outer[-1] > 0 else outer)
            if outer[-1] > 0 and not inner[4]:
                FP8GlobalStateManager.quantization_state.is_first_fp8_module = False
            FP8GlobalStateManager.autocast_exit(enabled, _graph=_graph)

    return autocast_fault(autocast)
