"""A region leaves a dispatch mode active: every operator goes through it, and Dynamo compiles no frame under it.

Real code: a logger of operators that is entered by ``__enter__`` and whose ``__exit__`` hangs on an event that doesn't
come. What such a mode does to compiled code: pytorch/pytorch#161790.
"""

from __future__ import annotations

from harness import torch_compat
from harness.faults.at_exit import entered_at_exit
from harness.faults.fault import Fault

FAULT = Fault(
    name="dispatch_mode_left",
    breaks="a dispatch mode is left active, so that nothing is compiled any more",
    caught_by="state.unchanged",
    apply=entered_at_exit(torch_compat.passing_dispatch_mode),
    report="pytorch/pytorch#161790",
)
