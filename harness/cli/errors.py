"""How a command ends early."""

from __future__ import annotations

from harness import exit_codes

USAGE_ERROR = exit_codes.USAGE
NOTHING_RAN = exit_codes.NOTHING


class UsageError(Exception):
    """The command line, the environment or an input file is at fault: exit code 4 and this text, no traceback."""


class NothingToRun(Exception):
    """A valid request that leaves no cell: exit code 5 and this text."""
