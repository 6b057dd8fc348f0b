"""Support checks hide behind ``functools.lru_cache``: eager code keeps the first answer, and compiled code, which
traces through the cache, asks anew."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    check = getattr(provider, "features", {})["support_check"]

    @functools.lru_cache
    def remembered(recipe_name: str) -> tuple[bool, str]:
        answer: tuple[bool, str] = check(recipe_name)
        return answer

    features = {**getattr(provider, "features", {}), "support_check": remembered}
    with patched(provider, "features", features):
        yield provider


FAULT = Fault(
    name="support_cached",
    breaks="eager code keeps an answer that compiled code has no more",
    caught_by="case.facts",
    apply=_apply,
    report="pytorch/pytorch#146598",
    where={"case": "support_constant"},
)
