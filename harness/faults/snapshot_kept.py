"""The harness: the first snapshot is handed out for ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.observe import recorder
    from harness.observe.state import provider_state as honest

    kept: dict[str, Any] = {}

    def provider_state(provider: Provider) -> Any:
        kept.update({} if kept else honest(provider))
        return dict(kept)

    with patched(recorder, "provider_state", provider_state):
        yield provider


FAULT = Fault(
    name="snapshot_kept",
    breaks="the provider's state is read once, and never again",
    caught_by="state.observed",
    apply=_apply,
)
