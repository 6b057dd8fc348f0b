"""What a seeded fault is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.faults.elsewhere import ONLY_REFERENCE

if TYPE_CHECKING:
    from harness.providers.protocol import Provider


@dataclass(frozen=True)
class Fault:
    """A deliberate defect in a provider.

    ``apply(provider)`` is a context manager that yields the broken provider (the same object with something patched,
    or a wrapper) and mends everything when it is left. ``caught_by`` names the check that must turn red because of it.
    ``where`` holds the axis values of the cell that must show it, as a matrix writes them ({"case": "checkpoint",
    "variant": "around"}); what it leaves out is that of the usual cell (toy_linear, float8_current_scaling, nested,
    aot_eager, fullgraph). ``needs`` is what a machine must have for the fault to do anything: "cuda", or "" for any.
    ``providers`` are those of which it breaks anything; on another one the plan refuses it (harness.faults.elsewhere).
    """

    name: str
    breaks: str
    caught_by: str
    apply: Callable[[Provider], AbstractContextManager[Provider]]
    report: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    providers: tuple[str, ...] = ONLY_REFERENCE
