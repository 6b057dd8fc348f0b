"""Delayed scaling is refused where a region is entered, and not in the layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import delayed, linear
    from harness.fp8.recipe import Recipe

    def allow(recipe: Recipe) -> None:
        """The layer's question is never answered with no."""

    lenient = SimpleNamespace(**{**vars(delayed), "refuse_under_compile": allow})
    with patched(linear, "delayed", lenient):
        yield provider


FAULT = Fault(
    name="refusal_at_entry_only",
    breaks="a region that is opened around the compiled module is not refused",
    caught_by="error.refusal",
    apply=_apply,
    report="NVIDIA/TransformerEngine#2759",
    where={"case": "delayed_scaling", "variant": "around", "recipe": "delayed_scaling", "fullgraph": False},
)
