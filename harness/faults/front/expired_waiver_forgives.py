"""A waiver goes on forgiving after its last day."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from harness.faults.front import FAILS, FOREVER, LONG_AGO, FrontFault, matrix, waiver
from harness.faults.patching import patched


@contextmanager
def _apply() -> Iterator[None]:
    from harness.judge import waivers

    honest = waivers.apply_waivers

    def apply_waivers(verdict: Any, given: Any, *args: Any, **options: Any) -> Any:
        return honest(verdict, tuple(replace(one, expires=FOREVER) for one in given), *args, **options)

    with patched(waivers, "apply_waivers", apply_waivers):
        yield


FAULT = FrontFault(
    name="expired_waiver_forgives",
    breaks="nobody looks at the day on which a waiver expires",
    caught_by="audit.waiver",
    apply=_apply,
    matrix=matrix({}, {**FAILS, "seed": 2}, waivers=(waiver("xfail", expires=LONG_AGO, seed=2),)),
)
