"""The library leaves a stance of torch.compile in force: whatever is not compiled yet runs eagerly, without a word.

Real code: ``torch.compiler.set_stance("eager_on_recompile")`` by a call around a warm-up or a benchmark. Unlike
``compilation_off``, which is there before a cell begins, it is the region that brings it about.
"""

from __future__ import annotations

import torch

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault

FAULT = Fault(
    name="stance_left",
    breaks="a stance of torch.compile is left under which new frames run eagerly",
    caught_by="state.unchanged",
    apply=exit_fault(
        lambda: torch.compiler.set_stance("eager_on_recompile"), lambda: torch.compiler.set_stance("default")
    ),
    report="pytorch/pytorch#161790",
)
