"""Support checks say no, and the reason beside it is empty."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import support

    check = support._check

    def silent(recipe_name: str, device: str, arch: str, emulate: bool) -> tuple[bool, str]:
        available, reason = check(recipe_name, device, arch, emulate)
        return available, reason if available else ""

    with patched(support, "_check", silent):
        yield provider


FAULT = Fault(
    name="refusal_without_reason",
    breaks="a support check refuses a recipe without a reason",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "support_constant"},
)
