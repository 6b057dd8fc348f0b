"""Facts that a case states beside its program: an expected value, the value seen, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.observe.errors import describe_error, is_documented
from harness.observe.types import Fact
from harness.types import Axes, Evidence

if TYPE_CHECKING:
    import torch

    from harness.providers.protocol import Provider


class NotAsDocumented(Exception):
    """A documented error that did not come, or came otherwise."""


@dataclass
class Probing:
    """What a case's ``probes`` is given. The provider was reset; state is compared around each :meth:`part`."""

    provider: Provider
    axes: Axes
    evidence: Evidence
    arch: str
    device: torch.device
    dtype: torch.dtype
    part: Callable[[str], Any]  # part(moment): state before and after must be equal; an exception becomes an error
    facts: list[Fact] = field(default_factory=list)

    def fact(self, name: str, expected: object, seen: object) -> None:
        """State one fact."""
        self.facts.append(Fact(name, str(expected), str(seen)))


@contextmanager
def documented(error: str, match: str, what: str = "the call") -> Iterator[None]:
    """The body must raise: a class of this name (bases count) and this text, anywhere in the exception's chain.

    Raises:
        NotAsDocumented: nothing was raised, or something else.
    """
    wanted = f"{what}: expected {error} matching {match!r}"
    try:
        yield
    except Exception as raised:
        seen = describe_error(raised, "run")
        if not is_documented(seen, error, match):
            raise NotAsDocumented(f"{wanted}, got {seen.type}: {seen.message}") from raised
        return
    raise NotAsDocumented(f"{wanted}, nothing was raised")
