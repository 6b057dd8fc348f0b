"""Made-up records of a calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.judge.calibrate_catalogue import BOUNDS, EQUALITIES
from harness.judge.calibrate_records import Calibration, Header, Measured, Met

KERNEL, PROGRAM = ("numerics.kernel", "fprop"), ("numerics.program", "output with bias")


def met(name: tuple[str, str] = KERNEL, worst: float | None = 0.1, count: int = 2) -> Met:
    return Met(*name, count, worst, "eager, layers.0 fprop" if worst is not None else "")


def cell(*items: Met, **changes: Any) -> Measured:
    values: dict[str, Any] = {
        "cell": "toy_linear[provider=reference,recipe=float8_current_scaling]",
        "provider": "reference",
        "recipe": "float8_current_scaling",
        "nesting": "flat",
        "data": "normal",
        "seed": 0,
        "shape": "128,256,128",
        "dtype": "bfloat16",
        "backend": "none",
        "evidence": "native",
        "judged": True,
        "met": items or (met(),),
    }
    return Measured(**{**values, **changes})


def calibration(cells: Sequence[Measured] = (), **changes: Any) -> Calibration:
    values: dict[str, Any] = {
        "machine": "CPU",
        "date": "2027-01-02",
        "command": "python -m harness.judge.calibrate --seeds 2",
        "versions": {"python": "3.11.7", "torch": "2.13.0", "pytest": "9"},
        "hardware": "x86_64, 2 cores",
        "planned": len(cells),
    }
    return Calibration(Header(**{**values, **changes}), tuple(cells))


def every_name() -> tuple[Met, ...]:
    """One record of each bound and equality of the catalogue."""
    bounded = (met(bound.name) for bound in BOUNDS)
    return (*bounded, *(met(equality.name, None, 7) for equality in EQUALITIES))
