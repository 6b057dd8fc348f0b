"""The checkpoint doesn't keep the state of the generators: dropout differs in the recompute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness import fp8

    checkpoint = fp8.checkpoint

    def forgetful(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return checkpoint(function, *args, preserve_rng_state=False, **kwargs)

    with patched(fp8, "checkpoint", forgetful):
        yield provider


FAULT = Fault(
    name="recompute_draws_anew",
    breaks="a recompute draws other random numbers than its forward",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "checkpoint", "variant": "own_around"},
)
