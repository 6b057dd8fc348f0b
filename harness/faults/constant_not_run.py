"""An upgrade of torch: ``assume_constant_result`` no longer has Dynamo run the function, it is traced like any other.

Everything that refuses or answers through it would go quiet; functions that were marked before go on as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


def _unmarked(function: Any) -> Any:
    return function


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    with patched(torch.compiler, "assume_constant_result", _unmarked):
        yield provider


FAULT = Fault(
    name="constant_not_run",
    breaks="torch treats assume_constant_result otherwise than it did",
    caught_by="case.facts",
    apply=_apply,
    report="pytorch/pytorch#128437",
    where={"case": "canary"},
)
