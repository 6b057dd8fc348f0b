"""The checkpoint hands a body its positional arguments and nothing else."""

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

    def positional(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        del kwargs
        return checkpoint(function, *args)

    with patched(fp8, "checkpoint", positional):
        yield provider


FAULT = Fault(
    name="checkpoint_drops_keywords",
    breaks="keyword arguments of a checkpointed body are lost",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "checkpoint", "variant": "own_around"},
)
