"""The exit codes of every command: one number means the same of all of them (docs/running.md has the table)."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable

GOOD = 0  # all as expected
RED = 1  # not as expected: a red cell, a fault that was missed, an alarm, work to do
INTERRUPTED = 2
INTERNAL = 3  # the command itself failed: nothing that it says, or leaves out, can be relied on
USAGE = 4  # the command line, the environment or a file that it was given
NOTHING = 5  # a valid request, but there is nothing that could be run here

# What outranks what where a command has several of them to tell.
BY_RANK = (INTERNAL, USAGE, INTERRUPTED, RED, NOTHING, GOOD)


def highest(codes: Iterable[int]) -> int:
    """The one of ``codes`` that outranks the others, 0 of none; a code that is none of ours is an internal error."""
    found = {code if code in BY_RANK else INTERNAL for code in codes}
    return next((code for code in BY_RANK if code in found), GOOD)


def guarded(main: Callable[[], int]) -> int:
    """What ``main`` returns; an interrupt and a defect of the harness have codes of their own, where Python says 1.

    ``python -m`` of a module that is no command of runner.py ends with it.
    """
    try:
        return main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception:
        traceback.print_exc()
        print("error: this is a defect of the harness: please report it with the text above", file=sys.stderr)
        return INTERNAL
