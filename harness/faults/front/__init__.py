"""Seeded faults of the harness's own front: what schedules, reconciles, forgives, counts and reports.

Adding one: a file here with a ``FAULT``, and a line in ``FRONT_FAULTS``. Each must be noticed by the finding that it
names, on a run that is the same as an honest one but for the patch. The patch is active only in the child process of
``harness.selftest.front``: nothing in the harness can be switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

RECIPE = "float8_current_scaling"
# What makes a scripted cell fail. The provider stays the same, so that the required evidence is earned beside it and
# nothing but the red cell keeps the run from being green.
FAILS: Mapping[str, Any] = {"dtype": "float16"}
RED_SEED = 1  # of the cell that is red and not forgiven
FOREVER, LONG_AGO = "2999-01-01", "2001-01-01"


def waiver(kind: str, expires: str = FOREVER, **when: Any) -> dict[str, Any]:
    """An entry of ``waivers``."""
    return {"kind": kind, "when": when, "reason": "seeded", "owner": "selftest", "expires": expires}


def matrix(*cells: Mapping[str, Any], waivers: tuple[Mapping[str, Any], ...] = ()) -> dict[str, Any]:
    """A matrix of ``cells``, each with the axes that differ from the passing cell's."""
    usual = {"provider": "reference", "recipe": RECIPE}
    include = [{**usual, **cell} for cell in cells]
    return {"schema_version": 1, "name": "front", "include": include, "waivers": list(waivers)}


# One cell of each kind: passed, red, expected to fail, in quarantine, skipped (harness/selftest/scripted.py).
USUAL = matrix(
    {},
    {**FAILS, "seed": RED_SEED},
    {**FAILS, "seed": 2},
    {**FAILS, "seed": 3},
    {"data": "positive"},
    waivers=(waiver("xfail", seed=2), waiver("quarantine", seed=3)),
)


@dataclass(frozen=True)
class FrontFault:
    """A deliberate defect of the front.

    ``apply()`` breaks it while the context is open. ``caught_by`` names the finding, of a cell or of the audit, that
    must be there because of it. ``matrix`` is the document that is run; ``honest`` the exit code of the same run
    without the fault.
    """

    name: str
    breaks: str
    caught_by: str
    apply: Callable[[], AbstractContextManager[None]]
    matrix: Mapping[str, Any] = field(default_factory=lambda: USUAL)
    report: str = ""
    honest: int = 1
