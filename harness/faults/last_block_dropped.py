"""The GEMM's loop over K ends one block early: the last 32 products of each sum are left out."""

from __future__ import annotations

import dataclasses
from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, kernel_fault


def _change(given: Given) -> Given:
    if given.recipe.name != "mxfp8_block_scaling":
        return given
    return dataclasses.replace(given, a=_shortened(given.a))


def _shortened(operand: Any) -> Any:
    data = operand.data.clone()
    data[:, -32:] = 0
    return dataclasses.replace(operand, data=data)


FAULT = Fault(
    name="last_block_dropped",
    breaks="the last block of K is left out of each product",
    caught_by="numerics.kernel",
    apply=kernel_fault(_change),
    where={"recipe": "mxfp8_block_scaling", "nesting": "flat", "fullgraph": False},
)
