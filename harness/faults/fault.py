"""What a seeded fault is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.providers.protocol import Provider


@dataclass(frozen=True)
class Fault:
    """A deliberate defect in a provider.

    ``apply(provider)`` is a context manager that yields the broken provider (the same object with something patched,
    or a wrapper) and mends everything when it is left. ``caught_by`` names the check that must turn red because of it.
    """

    name: str
    breaks: str
    caught_by: str
    apply: Callable[[Provider], AbstractContextManager[Provider]]
    report: str = ""
