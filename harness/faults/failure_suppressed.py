"""A layer that can't be compiled, in a library that switched ``suppress_errors`` on when it was imported: every frame
with such a layer runs eagerly, and no break is counted.

Real code: both halves are common, and each is a loud error or a harmless setting without the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness import torch_compat
from harness.faults import op_without_fake
from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    with torch_compat.patched_compile_config({"dynamo.suppress_errors": True}):
        with op_without_fake.FAULT.apply(provider) as broken:
            yield broken


FAULT = Fault(
    name="failure_suppressed",
    breaks="a failure to compile becomes an eager run without a break",
    caught_by="compile.eager_frames",
    apply=_apply,
    report="pytorch/pytorch#87440",
    where={"fullgraph": False},
)
