"""MXFP8's power-of-two scales are always rounded up: a recipe that asks for the specification's own rule, down to the
exponent of the largest element (OCP Microscaling Formats v1.0, section 6.3), gets the other one.

Up is the default, so that only a recipe which says ``scale_rounding: floor`` shows it.
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
    import torch

    from harness.fp8 import formats

    largest = {target.emax: target.max for target in (formats.E4M3, formats.E5M2)}

    def ceil(amax: torch.Tensor, emax: int) -> Any:
        return formats.e8m0_ceil(amax / torch.full_like(amax, largest[emax]))

    with patched(formats, "e8m0_floor", ceil):
        yield provider


FAULT = Fault(
    name="e8m0_other_way",
    breaks="block scales are rounded up to a power of two where the recipe says down",
    caught_by="numerics.scales",
    apply=_apply,
    where={"case": "recipe_switch", "variant": "inside", "recipe": "mxfp8_block_scaling", "fullgraph": False},
)
