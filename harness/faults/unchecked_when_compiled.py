"""The shape check stands in the module alone and is skipped while torch.compile traces: the kernel gets any shape."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ops, shapes

    check = shapes.check

    def in_eager(*arguments: Any) -> None:
        if not torch.compiler.is_compiling():
            check(*arguments)

    def nowhere(*arguments: Any) -> None:
        """The operators rely on the module's check."""

    with patched(shapes, "check", in_eager), patched(ops, "shapes", SimpleNamespace(check=nowhere)):
        yield provider


FAULT = Fault(
    name="unchecked_when_compiled",
    breaks="a batch off alignment is refused in eager and computed when compiled",
    caught_by="error.unexpected",
    apply=_apply,
    where={"case": "dynamic_shapes", "variant": "misaligned"},
)
