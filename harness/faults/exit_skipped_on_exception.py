"""The region's exit stands outside any ``finally``: an exception inside leaves the region's state in force."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _autocast(enabled: bool = True, recipe: Any = None) -> Iterator[None]:
    from harness.fp8 import FP8GlobalStateManager

    outer = FP8GlobalStateManager.get_autocast_state()
    FP8GlobalStateManager.autocast_enter(enabled=enabled, fp8_recipe=recipe)
    yield
    FP8GlobalStateManager.set_autocast_state(outer)
    FP8GlobalStateManager.autocast_exit(enabled, _graph=False)


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    with patched(provider, "autocast", _autocast):
        yield provider
    provider.reset()


FAULT = Fault(
    name="exit_skipped_on_exception",
    breaks="an exception inside a region leaves FP8 enabled",
    caught_by="state.unchanged",
    apply=_apply,
    report="pytorch/pytorch#195488",
)
