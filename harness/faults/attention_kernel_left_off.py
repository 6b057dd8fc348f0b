"""A region leaves one of torch's attention kernels switched off: every attention of the user's takes a slower one.

Real code: flash attention switched off for a layer with the function in place of the context.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault
from harness.observe.process_state import attention_kernels, set_attention_kernels
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    before = attention_kernels()
    leave = functools.partial(set_attention_kernels, {"flash": not before["flash"]})
    with exit_fault(leave, lambda: set_attention_kernels(before))(provider) as broken:
        yield broken


FAULT = Fault(
    name="attention_kernel_left_off",
    breaks="flash attention is left switched off",
    caught_by="state.unchanged",
    apply=_apply,
)
