"""What the faults of a belief share: another rule for one recipe, which the whole library then goes by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from harness.faults.patching import patched

if TYPE_CHECKING:
    from harness.providers.protocol import Provider


def believing(recipe: str, arch: str, reason: str) -> Callable[[Provider], AbstractContextManager[Provider]]:
    """An ``apply`` for a fault in which ``recipe`` has no kernel on ``arch`` for this ``reason``, nor may another stand
    in, or has one where it is empty."""

    @contextmanager
    def apply(provider: Provider) -> Iterator[Provider]:
        from harness.fp8 import support

        rule, emulator = support._RULES[recipe]
        changed = (
            lambda asked: reason if asked == arch else rule(asked),
            lambda asked: False if asked == arch else emulator(asked),
        )
        with patched(support, "_RULES", {**support._RULES, recipe: changed}):
            support.clear_caches()
            yield provider
        support.clear_caches()

    return apply
