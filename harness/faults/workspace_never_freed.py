"""Each product takes a workspace from the GPU's allocator, as a C++ extension does, and gives none back.

No tensor of Python's lies in it: only the allocator's own count shows it.
"""

from __future__ import annotations

from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault

_BYTES = 1 << 16
_TAKEN: list[int] = []  # addresses


def _taking(given: Given, multiply: Multiply) -> Any:
    _TAKEN.append(torch.cuda.caching_allocator_alloc(_BYTES))
    return multiply(given)


def _give_back() -> None:
    while _TAKEN:
        torch.cuda.caching_allocator_delete(_TAKEN.pop())  # type: ignore[no-untyped-call]


FAULT = Fault(
    name="workspace_never_freed",
    breaks="each product takes memory of the GPU that is never given back, and that no tensor lies in",
    caught_by="state.memory",
    apply=product_fault(_taking, clear=_give_back),
    needs="cuda",
)
