"""DelayedScaling is refused by a plain raise, which a ``try`` in the compiled function catches, also with fullgraph."""

from __future__ import annotations

from harness.faults import plain_refusal
from harness.faults.fault import Fault

FAULT = Fault(
    name="refusal_caught",
    breaks="the user's own except clause swallows the refusal, and a graph of the fallback runs",
    caught_by="error.refusal",
    apply=plain_refusal.FAULT.apply,
    report="NVIDIA/TransformerEngine#2759",
    where={"case": "delayed_scaling", "variant": "try_except", "recipe": "delayed_scaling"},
)
