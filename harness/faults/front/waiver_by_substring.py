"""A waiver forgives whatever contains its text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.front import FAILS, FrontFault, matrix, waiver
from harness.faults.patching import patched


@contextmanager
def _apply() -> Iterator[None]:
    from harness.plan import matching
    from harness.plan.axes import spell

    with patched(matching, "_same", lambda value, wanted: spell(wanted) in spell(value)):
        yield


def _same_but_for(nesting: str) -> dict[str, Any]:
    return {**FAILS, "nesting": nesting}


FAULT = FrontFault(
    name="waiver_by_substring",
    breaks="a waiver for nesting=nested forgives nested_disabled as well",
    caught_by="audit.waiver",
    apply=_apply,
    matrix=matrix(
        {}, _same_but_for("nested"), _same_but_for("nested_disabled"), waivers=(waiver("xfail", nesting="nested"),)
    ),
)
