"""Random numbers that a program draws itself (dropout): found out, and drawn from one seed for each step.

Compiled code and eager code of the same operations draw the same numbers from the same state of torch's generators.
Without a seed of its own each step would depend on how many came before it.
"""

from __future__ import annotations

import random
import sys
import zlib
from typing import Any

import torch


def other_generators() -> tuple[Any, ...]:
    """The states of Python's own generator and of numpy's, where it is imported; torch's are part of torch's state."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return (random.getstate(),)
    name, keys, position = numpy.random.get_state()[:3]
    return (random.getstate(), name, keys.tobytes(), position)


def seed_draws(seed: int, index: int) -> None:
    """Put every generator into the state in which step ``index`` of a cell with this ``seed`` begins."""
    mixed = zlib.crc32(f"{seed} draws {index}".encode())
    torch.manual_seed(mixed)
    random.seed(mixed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(mixed)
