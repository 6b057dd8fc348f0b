"""A weight is quantised on its first use and kept: right until an optimizer changes it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault

if TYPE_CHECKING:
    from harness.fp8.quantizer import Quantized

_KEPT: dict[tuple[object, ...], Quantized] = {}


def _change(given: Given, multiply: Multiply) -> Any:
    if given.b.role == "weight":
        key = (given.product, given.recipe.key, given.weight.data_ptr(), given.b.source.shape)
        given = dataclasses.replace(given, b=_KEPT.setdefault(key, given.b))
    return multiply(given)


FAULT = Fault(
    name="weight_kept_over_steps",
    breaks="the quantised weight of the first step is used after the optimizer changed the weight",
    caught_by="numerics.tap",
    apply=product_fault(_change, clear=_KEPT.clear),
    report="NVIDIA/TransformerEngine#1047",
    where={"case": "multi_step"},
)
