"""What can be wrong with a matrix or with a selection from it, as messages that a user can act on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MatrixError:
    """One thing wrong in a matrix file. ``line`` and ``column`` count from 1; line 0 is the file as a whole."""

    file: str
    line: int
    column: int
    message: str
    nearest: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        hint = f" (did you mean {self.nearest}?)" if self.nearest else ""
        return f"{place}: {self.message}{hint}"


class PlanError(Exception):
    """Base of what planning raises: each ends a run with exit code 4 and its text, never with a traceback."""


class MatrixErrors(PlanError):
    """Everything wrong with one matrix, its waiver files included, in reading order."""

    def __init__(self, errors: Sequence[MatrixError]) -> None:
        if not errors:
            raise ValueError("MatrixErrors needs at least one error")
        # One mistake behind an anchor is met once per alias; it is one mistake.
        unique = dict.fromkeys(errors)
        self.errors: tuple[MatrixError, ...] = tuple(sorted(unique, key=lambda one: (one.file, one.line, one.column)))
        super().__init__(self.errors)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


class SelectionError(PlanError):
    """A selection or override that names something unknown. ``nearest`` holds what may have been meant, best first."""

    def __init__(self, message: str, nearest: Sequence[str] = ()) -> None:
        self.message = message
        self.nearest = tuple(nearest)
        super().__init__(message, self.nearest)

    def __str__(self) -> str:
        if not self.nearest:
            return self.message
        if len(self.nearest) == 1:
            return f"{self.message} (did you mean {self.nearest[0]}?)"
        return "\n  ".join([f"{self.message}; nearest:", *self.nearest])
