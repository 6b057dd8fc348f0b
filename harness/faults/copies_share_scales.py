"""A deep copy of a layer has the layer's own scales and amax histories: each moves the other's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


def _itself(kept: Any, memo: Any) -> Any:
    del memo
    return kept


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8.delayed import DelayedTensors

    with patched(DelayedTensors, "__deepcopy__", _itself):
        yield provider


FAULT = Fault(
    name="copies_share_scales",
    breaks="copies of a layer share its scales",
    caught_by="case.facts",
    apply=_apply,
    where={
        "case": "delayed_scaling",
        "variant": "resized",
        "recipe": {"name": "delayed_scaling", "amax_history_len": 2},
    },
)
