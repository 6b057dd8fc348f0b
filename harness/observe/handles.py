"""What a process holds of the system's beside memory: open files and threads, counted."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Sequence

from harness.observe.types import Handles

_FILES = ("/proc/self/fd", "/dev/fd")  # Linux; macOS
_THREADS = "/proc/self/task"  # Linux


def handles() -> Handles:
    """How many there are now (40 µs): files 0 where the system doesn't tell, threads those of Python there."""
    files = next((count for count in map(_entries, _FILES) if count), 0)
    return Handles(files, _entries(_THREADS) or threading.active_count())


def files_grew(counts: Sequence[Handles]) -> bool:
    """Whether each stretch of calls left more files open than were open before it, and nothing closed them after."""
    return _rises([item.files for item in counts])


def threads_grew(counts: Sequence[Handles]) -> bool:
    """Whether each stretch of calls left more threads than there were before it, and none ended after."""
    return _rises([item.threads for item in counts])


def _rises(counts: Sequence[int]) -> bool:
    """Whether each number is above the one before; the last one, of after a collection, not below."""
    *marks, last = counts or [0]
    rising = all(one < other for one, other in itertools.pairwise(marks))
    return len(marks) > 1 and rising and last >= marks[-1]


def _entries(directory: str) -> int:
    try:
        return len(os.listdir(directory))
    except OSError:
        return 0
