"""448 / infinity is a scale of zero, and its inverse infinite: one infinity in a tensor turns all of it into NaN."""

from __future__ import annotations

from harness.faults.fault import Fault
from harness.faults.unguarded_scale import unguarded

FAULT = Fault(
    name="infinite_amax",
    breaks="an amax of infinity gives a scale of zero, and NaN in every row",
    caught_by="case.facts",
    apply=unguarded(lambda amax: amax.isinf()),
    where={"case": "amax_edges", "variant": "infinite"},
)
