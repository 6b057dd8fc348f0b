"""Random numbers that a program draws itself (dropout): found out, and drawn from one seed for each step.

Compiled code and eager code of the same operations draw the same numbers from the same state of torch's generators.
Without a seed of its own each step would depend on how many came before it.
"""

from __future__ import annotations

import random
import sys
import zlib
from array import array
from collections.abc import Mapping

import torch


def other_generators() -> Mapping[str, bytes]:
    """The states of Python's own generator and of NumPy's, where it is imported; torch's are part of torch's state."""
    version, numbers, gauss = random.getstate()
    states = {"python": array("L", numbers).tobytes() + repr((version, gauss)).encode()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        states["numpy"] = keys.tobytes() + repr((name, rest)).encode()
    return states


def seed_draws(seed: int, index: int) -> None:
    """Put every generator into the state in which step ``index`` of a cell with this ``seed`` begins."""
    mixed = zlib.crc32(f"{seed} draws {index}".encode())
    torch.manual_seed(mixed)
    random.seed(mixed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(mixed)
