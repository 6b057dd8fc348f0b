"""Which evidence a cell can give on this machine (docs/evidence.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.providers.protocol import Provider, Support, rehearses
from harness.run.host import host_arch
from harness.types import Cell, Evidence


@dataclass(frozen=True)
class Resolved:
    """Evidence level and the provider's belief about each recipe of the cell, by label."""

    evidence: Evidence
    support: Mapping[str, Support]


def resolve(cell: Cell, provider: Provider, arch: str) -> Resolved:
    """First match wins: unsupported -> negative; elsewhere -> rehearsed or traced; all native -> native; else emulated.

    A cell whose inner recipe alone is emulated is emulated: evidence is that of its weakest part.
    """
    specs = [cell.axes.recipe] + ([cell.inner] if cell.inner else [])
    support = {spec.label: provider.supports(spec, arch) for spec in specs}
    levels = {belief.level for belief in support.values()}
    if "unsupported" in levels:
        return Resolved(Evidence.NEGATIVE, support)
    # "cpu" is an architecture of its own and every machine has one.
    if arch not in ("cpu", host_arch()):
        return Resolved(Evidence.REHEARSED if rehearses(provider) else Evidence.TRACED, support)
    return Resolved(Evidence.NATIVE if levels == {"native"} else Evidence.EMULATED, support)
