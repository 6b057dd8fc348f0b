"""The harness: a later compiled call is observed as NaN."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.observe import executed
    from harness.observe.types import LaterCall as honest

    def later(name: str, tapped: bool, compiled: Any, *others: Any) -> Any:
        spoiled = replace(compiled, output=torch.full_like(compiled.output, torch.nan))
        return honest(name, tapped, spoiled if name == "steady call 10" else compiled, *others)

    with patched(executed, "LaterCall", later):
        yield provider


FAULT = Fault(
    name="observed_nan_later",
    breaks="the observer returns NaN for the last of the steady calls",
    caught_by="numerics.later",
    apply=_apply,
)
