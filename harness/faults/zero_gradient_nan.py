"""A gradient of zeros has an amax of zero: where the whole tensor is zero, its scale is a quotient by that."""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import source_fault


def _change(source: torch.Tensor) -> torch.Tensor:
    return torch.full_like(source, float("nan")) if not bool(source.any()) else source


FAULT = Fault(
    name="zero_gradient_nan",
    breaks="an output's gradient that is zero everywhere becomes NaN everywhere",
    caught_by="case.facts",
    apply=source_fault("grad_output", _change),
    where={"case": "amax_edges", "variant": "infinite"},
)
