"""The library switches Dynamo's ``suppress_errors`` on: every later failure to compile is an eager run.

Real code: a library that sets it for its users on the first use, so that they see no stack of the compiler.
"""

from __future__ import annotations

from harness import torch_compat
from harness.faults.at_exit import entered_at_exit
from harness.faults.fault import Fault

FAULT = Fault(
    name="errors_suppressed",
    breaks="failures to compile are left to pass as eager runs",
    caught_by="state.unchanged",
    apply=entered_at_exit(lambda: torch_compat.patched_compile_config({"dynamo.suppress_errors": True})),
    report="pytorch/pytorch#87440",
)
