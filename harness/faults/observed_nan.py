"""The harness: whatever the compiled run returns is observed as NaN."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from harness.faults.fault import Fault
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.faults.patching import patched
    from harness.observe import executed
    from harness.observe.run import run_steps as honest

    def run_steps(program: Any, batches: Any, records: Any, forward: Any, enter: Any, phases: Any, make: Any) -> Any:
        seen = honest(program, batches, records, forward, enter, phases, make)
        if phases != ("compile", "run"):
            return seen
        return replace(seen, steps=tuple(replace(s, output=torch.full_like(s.output, torch.nan)) for s in seen.steps))

    with patched(executed, "run_steps", run_steps):
        yield provider


FAULT = Fault(
    name="observed_nan",
    breaks="the observer of compiled runs returns NaN in place of outputs",
    caught_by="numerics.finite",
    apply=_apply,
)
