"""Current scaling is refused on sm100, properly and everywhere: only who knows the hardware sees that it's wrong."""

from __future__ import annotations

from harness.faults.believing import believing
from harness.faults.fault import Fault

FAULT = Fault(
    name="believes_too_little",
    breaks="per-tensor FP8 is refused on sm100",
    caught_by="support.belief",
    apply=believing("float8_current_scaling", "sm100", "per-tensor FP8 needs compute capability 8.9 or 9.0"),
    where={"arch": "sm100", "recipe": "float8_current_scaling"},
)
