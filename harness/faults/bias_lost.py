"""The bias is never added, as by a GEMM without the epilogue that was to do it."""

from __future__ import annotations

from harness.faults.biases import bias_fault
from harness.faults.fault import Fault

FAULT = Fault(
    name="bias_lost",
    breaks="FP8 layers leave their bias out",
    caught_by="numerics.program",
    apply=bias_fault(lambda y, bias: y),
    where={"recipe": "mxfp8_block_scaling", "nesting": "flat", "fullgraph": False},
)
