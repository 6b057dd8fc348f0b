"""How much time is left of a run, when one cell of it may hang."""

from __future__ import annotations

import math
from collections.abc import Sequence

OUTLIERS = 0.1  # the share of cells that may have taken any time, as one that hangs until its time limit does


def typical(seconds: Sequence[float]) -> float:
    """The mean of ``seconds``, the longest tenth of it (one at least, where there are two) counted as the next longest.

    A winsorised mean (Dixon 1960) of the upper end: one cell that takes minutes says nothing of the hundreds to come,
    while many that do are what these will take. 0.0 of none.
    """
    if not seconds:
        return 0.0
    ordered = sorted(seconds)
    longest = ordered[max(len(ordered) - math.ceil(OUTLIERS * len(ordered)), 1) - 1]
    return sum(min(one, longest) for one in ordered) / len(ordered)


def left(cells: int, took: Sequence[float], running: Sequence[float], spent: float) -> float:
    """Seconds for the last ``cells`` of a run.

    Args:
        took: seconds of each cell that has ended.
        running: seconds since each that runs began; with ``took`` and ``spent`` they tell how many run at once.
        spent: seconds since the run began.
    """
    at_once = max((sum(took) + sum(running)) / spent, 1.0) if spent > 0 else 1.0
    return typical(took) * cells / at_once
