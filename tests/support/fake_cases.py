"""Made-up registered cases for the tests of the plan: nothing imports them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from cases import CASES
from harness.types import NESTINGS, CaseEntry

FAKE_CASES = {
    "toy_linear": CaseEntry("nowhere:CASE", nestings=NESTINGS),
    "checkpoint": CaseEntry(
        "nowhere:CASE",
        variants=("reentrant", "nonreentrant", "around"),
        nestings=("flat", "nested"),
        pair=("around",),
    ),
    "amax_edges": CaseEntry("nowhere:CASE", variants=("zeros", "one_huge")),
    "recipe_switch": CaseEntry("nowhere:CASE", pair=("",)),
    "delayed": CaseEntry("nowhere:CASE", recipes=("delayed_scaling",)),
    "target": CaseEntry("nowhere:CASE"),
}


@contextmanager
def fake_cases() -> Iterator[None]:
    """FAKE_CASES registered in place of the real ones."""
    table = cast("dict[str, CaseEntry]", CASES)
    with pytest.MonkeyPatch.context() as patch:
        for name in list(table):
            patch.delitem(table, name)
        for name, entry in FAKE_CASES.items():
            patch.setitem(table, name, entry)
        yield
