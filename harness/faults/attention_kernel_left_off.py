"""A region leaves one of torch's attention kernels switched off: every attention of the user's takes a slower one.

Real code: flash attention switched off for a layer with the function in place of the context.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    before = torch.backends.cuda.flash_sdp_enabled()
    with exit_fault(
        lambda: torch.backends.cuda.enable_flash_sdp(not before), lambda: torch.backends.cuda.enable_flash_sdp(before)
    )(provider) as broken:
        yield broken


FAULT = Fault(
    name="attention_kernel_left_off",
    breaks="flash attention is left switched off",
    caught_by="state.unchanged",
    apply=_apply,
)
