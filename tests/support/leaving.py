"""Faults that nobody mends: a real library doesn't put back what it left when a harness has seen enough of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.flop_counter import FlopCounterMode

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault


def _leaving(name: str, leave: Callable[[], object]) -> Fault:
    """A fault that nobody mends."""
    return Fault(name, "leaves it", "state.unchanged", exit_fault(leave, mend=lambda: None))


def _switches() -> None:
    """Each would change, or break, what the judge computes."""
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float16)
    torch.set_flush_denormal(True)
    torch.set_autocast_enabled("cpu", True)
    torch.autograd.set_detect_anomaly(True)
    torch.compiler.set_stance("force_eager")


def _refuse(tensor: Any) -> Any:
    raise RuntimeError("no tensor may be saved")


def _doubled(module: Any, args: Any, output: Any) -> Any:
    return output * 2 if isinstance(output, torch.Tensor) and output.dtype is torch.float64 else output


MODES = _leaving("modes", lambda: FlopCounterMode(display=False).__enter__())  # type: ignore[no-untyped-call]
SWITCHES = _leaving("switches", _switches)
DEVICE = _leaving("device", lambda: torch.set_default_device("meta"))
HOOKS = _leaving("hooks", lambda: torch.autograd.graph.saved_tensors_hooks(_refuse, _refuse).__enter__())
# Nothing but the judge computes in float64.
ORACLE_DOUBLED = _leaving("oracle_doubled", lambda: register_module_forward_hook(_doubled))
