"""NaN is taken for zero before the cast: a training run that has gone wrong looks healthy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ops

    quantize = ops.quantize  # type: ignore[attr-defined]  # looked up there by every operator

    def cleaned(source: Any, *arguments: Any) -> Any:
        return quantize(source.nan_to_num(nan=0.0, posinf=float("inf"), neginf=float("-inf")), *arguments)

    with patched(ops, "quantize", cleaned):
        yield provider


FAULT = Fault(
    name="nan_vanishes",
    breaks="a NaN is quantised as zero and never seen again",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "amax_edges", "variant": "nan"},
)
