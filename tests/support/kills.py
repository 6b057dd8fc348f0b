"""Records of the kill matrix and of the margins, as if they had been measured."""

from __future__ import annotations

from typing import Any, TypeVar

from harness.detection.journal import Header, Journal
from harness.detection.kill_measure import Killed
from harness.detection.margins_measure import BOUND, Distance

R = TypeVar("R")
FAULT = "scale_doubled"


def killed(fault: str = FAULT, named: str = "numerics.scales", *others: str, **changes: Any) -> Killed:
    """A fault that the named check sees alone, and ``others`` too."""
    values: dict[str, Any] = {
        "seed": 0,
        "cell": f"cell of {fault}",
        "alone": (named, *others),
        "removed": others,
        "together": (named, *others),
        "seconds": 2.0,
    }
    return Killed(fault, named, **{**values, **changes})


def distance(fault: str = "dgrad_doubled", named: str = "numerics.program", **changes: Any) -> Distance:
    """A fault that lies at ten times the bound of its check."""
    values: dict[str, Any] = {"twin": False, "case": "toy_linear", "seed": 0, "data": "normal", "kind": BOUND}
    values |= {"ratio": 10.0, "where": "eager, output", "findings": ("a finding",), **changes}
    return Distance(fault, named, cell=f"{fault} {values['twin']} {values['seed']} {values['data']}", **values)


def twin(ratio: float | None = 0.25, **changes: Any) -> Distance:
    return distance(**{"twin": True, "kind": "", "ratio": ratio, "findings": (), **changes})


def journal(
    *records: R, skipped: tuple[tuple[str, str], ...] = (), machine: str = "CPU", kind: str = "k"
) -> Journal[R]:
    versions = {"python": "3.11", "torch": "2.13.0"}
    return Journal(Header(kind, machine, "2026-01-02", "python -m x", "2 cores", versions, "abc", skipped), records)
