"""A region leaves compiled autograd on: every backward pass of the process is captured and compiled from then on.

Real code: a library that enables it around its own backward by a call, and returns early.
"""

from __future__ import annotations

from harness import torch_compat
from harness.faults.at_exit import entered_at_exit
from harness.faults.fault import Fault

FAULT = Fault(
    name="compiled_autograd_left",
    breaks="compiled autograd is left on",
    caught_by="state.unchanged",
    apply=entered_at_exit(lambda: torch_compat.compiled_autograd("aot_eager")),
)
