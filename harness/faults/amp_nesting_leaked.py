"""An FP8 layer under torch.autocast leaves that one's nesting a level deeper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    import torch

    from harness.fp8 import ops

    outside, leaked = ops.outside_autocast, []

    def deeper(device: str) -> AbstractContextManager[Any]:
        if torch.is_autocast_enabled(device):
            leaked.append(torch.autocast_increment_nesting())
        return outside(device)

    with patched(ops, "outside_autocast", deeper):
        yield provider
    for _ in leaked:
        torch.autocast_decrement_nesting()


FAULT = Fault(
    name="amp_nesting_leaked",
    breaks="torch.autocast's nesting is left deeper than it was",
    caught_by="state.unchanged",
    apply=_apply,
    report="pytorch/pytorch#195488",
    where={"case": "amp", "variant": "around"},
)
