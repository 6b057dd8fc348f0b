"""Leaving a nested region puts back the first-module flag as it was at its entry: a claim made inside is given back,
and a second module is the first too."""

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
    try:
        yield
    finally:
        FP8GlobalStateManager.set_autocast_state(outer)
        FP8GlobalStateManager.autocast_exit(enabled, _graph=False)


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    with patched(provider, "autocast", _autocast):
        yield provider


FAULT = Fault(
    name="first_module_revived",
    breaks="a nested region's exit gives the first-module claim back",
    caught_by="case.facts",
    apply=_apply,
    report="NVIDIA/TransformerEngine#3213",
    where={"case": "first_module", "variant": "inner_first"},
)
