"""The default recipe on compute capability 12.x is MXFP8, which the library refuses there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.fp8 import support

    chosen = support.default_recipe_name

    def by_generation(arch: str) -> str:
        return "mxfp8_block_scaling" if arch == "sm120" else chosen(arch)

    with patched(support, "default_recipe_name", by_generation):
        yield provider


FAULT = Fault(
    name="default_unsupported",
    breaks="the default recipe of an architecture is one that it lacks",
    caught_by="support.default",
    apply=_apply,
    report="NVIDIA/TransformerEngine#1939",
    where={"case": "default_recipe", "variant": "alone", "arch": "sm120"},
)
