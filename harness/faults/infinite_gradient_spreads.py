"""One infinity in a gradient, whose amax then is infinite, turns all of it into NaN."""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import source_fault


def _change(source: torch.Tensor) -> torch.Tensor:
    return torch.full_like(source, float("nan")) if bool(source.isinf().any()) else source


FAULT = Fault(
    name="infinite_gradient_spreads",
    breaks="an infinity in the gradient of an output makes NaN of every element of it",
    caught_by="case.facts",
    apply=source_fault("grad_output", _change),
    where={"case": "amax_edges", "variant": "infinite"},
)
