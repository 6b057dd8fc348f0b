"""The FP8 operators count as unsafe to capture: Inductor captures what is left and says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness import torch_compat
from harness.faults.fault import Fault
from harness.providers.protocol import Provider

OPERATORS = ("fp8ref::linear", "fp8ref::dgrad", "fp8ref::wgrad")


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    with torch_compat.patched_compile_config({"inductor.custom_should_partition_ops": list(OPERATORS)}):
        yield provider


FAULT = Fault(
    name="partitioned_away",
    breaks="no FP8 product is ever part of a CUDA graph, under reduce-overhead, and no skip is counted",
    caught_by="case.facts",
    apply=_apply,
    report="pytorch/pytorch#193044",
    where={"case": "cudagraph", "variant": "reduce_overhead", "backend": "inductor"},
    needs="cuda",
)
