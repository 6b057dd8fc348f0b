"""The scale of each block is that of the block before it along the reduction: an index that is one off."""

from __future__ import annotations

import dataclasses
from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, kernel_fault


def _change(given: Given) -> Given:
    if given.recipe.name != "float8_block_scaling":
        return given
    return dataclasses.replace(given, a=_shifted(given.a))


def _shifted(operand: Any) -> Any:
    return dataclasses.replace(operand, scale=operand.scale.roll(1, dims=1))


FAULT = Fault(
    name="block_scale_shifted",
    breaks="block scales are applied to the next block",
    caught_by="numerics.kernel",
    apply=kernel_fault(_change),
    where={"recipe": "float8_block_scaling", "nesting": "flat", "fullgraph": False},
)
