"""The bias gets no gradient: it is added behind autograd's back."""

from __future__ import annotations

from harness.faults.biases import bias_fault
from harness.faults.fault import Fault

FAULT = Fault(
    name="bias_gradient_lost",
    breaks="biases of FP8 layers get no gradient",
    caught_by="numerics.program",
    apply=bias_fault(lambda y, bias: y + bias.detach()),
    where={"recipe": "nvfp4_block_scaling", "nesting": "flat", "fullgraph": False},
)
