"""448 / amax overflows float32 for a tiny amax: a decode scale of zero, and codes of infinity that saturate."""

from __future__ import annotations

from harness.faults.fault import Fault
from harness.faults.unguarded_scale import unguarded

# Below it 448 / amax is more than float32's largest value.
OVERFLOWS = 448.0 / 3.4028234663852886e38

FAULT = Fault(
    name="scale_overflows",
    breaks="the scale of a tiny amax is infinite, its decode scale zero",
    caught_by="numerics.scales",
    apply=unguarded(lambda amax: (amax > 0) & (amax < OVERFLOWS)),
    where={"case": "amax_edges", "variant": "scale_overflow"},
)
