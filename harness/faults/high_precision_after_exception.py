"""Once something failed in a region, every later one is disabled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness import fp8
    from harness.faults.patching import patched

    failures: list[str] = []

    @contextmanager
    def cautious(enabled: bool = True, recipe: Any = None) -> Iterator[None]:
        with fp8.autocast(enabled=enabled and not failures, recipe=recipe):
            try:
                yield
            except Exception as error:
                failures.append(str(error))
                raise

    with patched(provider, "autocast", cautious):
        yield provider


FAULT = Fault(
    name="high_precision_after_exception",
    breaks="after an exception in a region the next call runs in high precision",
    caught_by="fp8.recipe_seen",
    apply=_apply,
    where={"case": "exception", "variant": "op"},
)
