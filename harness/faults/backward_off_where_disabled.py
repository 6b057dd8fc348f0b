"""Backward asks whether FP8 is on when it runs, and computes in high precision in a disabled region."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.products import Given, Multiply, product_fault


def _change(given: Given, multiply: Multiply) -> Any:
    from harness.fp8.state import FP8GlobalStateManager

    state = FP8GlobalStateManager.quantization_state
    off = given.product != "fprop" and state.autocast_depth > 0 and not state.fp8_enabled
    return given.high_precision() if off else multiply(given)


FAULT = Fault(
    name="backward_off_where_disabled",
    breaks="gradients are computed in high precision where backward runs in a disabled region",
    caught_by="fp8.gemms",
    apply=product_fault(_change),
    report="pytorch/pytorch#190578",
    where={"case": "backward_outside", "variant": "disabled_region"},
)
