"""The gradient's transposed bytes are garbled in one tile, its plain ones are right.

Real code: a cast kernel that stores both orientations at once, whose transposed one-byte store is compiled wrongly in
some launch configurations (triton-lang/triton#11111).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault

_TILE = 32


def _garbled(given: Given, multiply: Multiply) -> Any:
    if given.product != "wgrad":
        return multiply(given)
    codes = given.a.data.view(torch.uint8).clone()
    codes[:_TILE, :_TILE] = codes[:_TILE, :_TILE].flip(1)
    operand = dataclasses.replace(given.a, data=codes.view(given.a.data.dtype))
    return multiply(dataclasses.replace(given, a=operand))


FAULT = Fault(
    name="transposed_store_garbled",
    breaks="one tile of the gradient's transposed bytes is in another order",
    caught_by="numerics.codes",
    apply=product_fault(_garbled),
    report="triton-lang/triton#11111",
)
