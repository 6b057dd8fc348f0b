"""How far a cell with a fault has come. Whoever records the cell is told at once: a process that then dies can't say.

A death shows what a fault broke only where it lies between ``applied`` and ``judged``. Before that the fault's own
``apply`` is to blame, after it whatever mends the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

APPLIED, JUDGED, MENDED = "applied", "judged", "mended"
Tell = Callable[[str], None]
_listening: list[Tell] = []


@contextmanager
def told_to(tell: Tell) -> Iterator[None]:
    """Inside, ``tell`` is called with each stage that is reached."""
    _listening.append(tell)
    try:
        yield
    finally:
        _listening.remove(tell)


def reached(stage: str) -> None:
    """Every fault of this cell is now ``stage``; nobody is told outside of :func:`told_to`."""
    for tell in _listening:
        tell(stage)
