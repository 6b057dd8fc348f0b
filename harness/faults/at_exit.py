"""What the faults that leave something of torch's changed share: a region's exit does more than close the region."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from harness.faults.patching import patched

if TYPE_CHECKING:
    from harness.providers.protocol import Provider


def exit_fault(leave: Callable[[], object], mend: Callable[[], object]) -> Callable[[Provider], Any]:
    """An ``apply`` for a fault whose regions call ``leave`` as they are left, in eager code; ``mend`` undoes it for
    good."""

    @contextmanager
    def apply(provider: Provider) -> Iterator[Provider]:
        from harness.fp8.state import FP8GlobalStateManager

        close = FP8GlobalStateManager.autocast_exit

        def close_and_leave(enabled: bool, _graph: bool) -> None:
            close(enabled, _graph)
            if not torch.compiler.is_compiling():
                leave()

        try:
            with patched(FP8GlobalStateManager, "autocast_exit", staticmethod(close_and_leave)):
                yield provider
        finally:
            mend()

    return apply


def entered_at_exit(make: Callable[[], AbstractContextManager[Any]]) -> Callable[[Provider], Any]:
    """An ``apply`` for a fault whose first region, as it is left, enters the context ``make()`` and stays in it."""

    @contextmanager
    def apply(provider: Provider) -> Iterator[Provider]:
        entered = ExitStack()
        contexts: list[AbstractContextManager[Any]] = []

        def leave() -> None:
            if not contexts:
                contexts.append(make())
                entered.enter_context(contexts[0])

        with exit_fault(leave, entered.close)(provider) as broken:
            yield broken

    return apply
