"""The fake product has another dtype than the real one: what torch.compile traced after it is not what runs.

Real code: a fake implementation that returns the accumulator's dtype, or forgets the output dtype that the kernel takes
as an argument. (Another shape: ``sm100_pads_rows``.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ops

    with patched(ops, "fake_dtype", lambda x: torch.float32):
        yield provider


FAULT = Fault(
    name="fake_dtype",
    breaks="the fake product has another dtype than the real one",
    caught_by="error.unexpected",
    apply=_apply,
)
