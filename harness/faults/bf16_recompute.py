"""A checkpointed forward is recomputed in high precision."""

from __future__ import annotations

from typing import Any

from harness import torch_compat
from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault


def _change(given: Given, multiply: Multiply) -> Any:
    recompute = given.product == "fprop" and torch_compat.in_backward()
    return given.high_precision() if recompute else multiply(given)


FAULT = Fault(
    name="bf16_recompute",
    breaks="what a checkpoint recomputes is computed in high precision, compiled code included",
    caught_by="fp8.recipe_seen",
    apply=product_fault(_change),
    report="NVIDIA/Megatron-LM#7538",
    where={"case": "checkpoint", "variant": "own_inside", "nesting": "nested"},
)
