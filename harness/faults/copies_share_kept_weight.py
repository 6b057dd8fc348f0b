"""A deep copy of a layer has the layer's own tensors for the kept weight: both use what either quantised last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


def _itself(kept: Any, memo: Any) -> Any:
    del memo
    return kept


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8.weight_cache import WeightCache

    with patched(WeightCache, "__deepcopy__", _itself):
        yield provider


FAULT = Fault(
    name="copies_share_kept_weight",
    breaks="copies of a layer share its kept quantised weight",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "microbatch", "variant": "flag"},
)
