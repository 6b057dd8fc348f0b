"""What a layer keeps of its weight is used whatever the recipe: it was quantised for another one.

Nothing complains where the two recipes differ in a field that changes neither shapes nor dtypes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8.weight_cache import WeightCache

    def fits(self: Any, recipe: Any, weight: Any) -> bool:
        del recipe
        return bool(self.tensors[0].device == weight.device)

    with patched(WeightCache, "fits", fits):
        yield provider


FAULT = Fault(
    name="cache_ignores_recipe",
    breaks="a weight that was kept in one recipe is used in another",
    caught_by="numerics.scales",
    apply=_apply,
    where={"case": "microbatch", "variant": "other_recipe"},
)
