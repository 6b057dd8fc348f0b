"""``get_fp8_group()`` answers None, whatever group the region was given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import FP8GlobalStateManager

    def asked(cls: Any) -> None:
        del cls

    with patched(FP8GlobalStateManager, "get_fp8_group", classmethod(asked)):
        yield provider


FAULT = Fault(
    name="group_never_answered",
    breaks="the group that a region was given is not told",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "disabled", "variant": "inside"},
)
