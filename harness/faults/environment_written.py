"""A region leaves a variable in the environment, which every child process of the user's then starts with.

Real code: a library that talks to its own kernels through the environment (``NVTE_...``) and writes it while it runs.
"""

from __future__ import annotations

import os

from harness.faults.at_exit import exit_fault
from harness.faults.fault import Fault

NAME = "NVTE_LEFT_BEHIND"


FAULT = Fault(
    name="environment_written",
    breaks="a variable is left in the environment",
    caught_by="state.unchanged",
    apply=exit_fault(lambda: os.environ.update({NAME: "1"}), lambda: os.environ.pop(NAME, None)),
)
