"""The region's exit stands outside any ``finally``: an exception inside leaves the region's state in force."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import autocast_fault
from harness.faults.seams import BOTH, by_provider, te_region_fault


@contextmanager
def _autocast(enabled: bool = True, recipe: Any = None) -> Iterator[None]:
    from harness.fp8 import FP8GlobalStateManager

    outer = FP8GlobalStateManager.get_autocast_state()
    FP8GlobalStateManager.autocast_enter(enabled=enabled, fp8_recipe=recipe)
    yield
    FP8GlobalStateManager.set_autocast_state(outer)
    FP8GlobalStateManager.autocast_exit(enabled, _graph=False)


def _te_region(autocast: Any, manager: Any) -> Any:
    del manager

    class Unguarded(autocast):  # type: ignore[misc]
        def __exit__(self, exc_type: object, *exc_info: object) -> None:
            if exc_type is None:
                super().__exit__(exc_type, *exc_info)

    return Unguarded


FAULT = Fault(
    name="exit_skipped_on_exception",
    breaks="an exception inside a region leaves FP8 enabled",
    caught_by="state.unchanged",
    apply=by_provider(autocast_fault(_autocast), te_region_fault(_te_region)),
    report="pytorch/pytorch#195488",
    providers=BOTH,
)
