"""How a command ends early."""

from __future__ import annotations

USAGE_ERROR = 4
NOTHING_RAN = 5


class UsageError(Exception):
    """The command line, the environment or an input file is at fault: exit code 4 and this text, no traceback."""


class NothingToRun(Exception):
    """A valid request that leaves no cell: exit code 5 and this text."""
