"""The bias is added by the GEMM's epilogue and once more by the layer."""

from __future__ import annotations

from harness.faults.biases import bias_fault
from harness.faults.fault import Fault

FAULT = Fault(
    name="bias_added_twice",
    breaks="FP8 layers add their bias twice",
    caught_by="numerics.program",
    apply=bias_fault(lambda y, bias: y + bias + bias),
    where={"recipe": "float8_rowwise_scaling", "nesting": "flat", "fullgraph": False},
)
