"""A gradient of zeros has an amax of zero: where the whole tensor is zero, its scale is a quotient by that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import Asked, Quantise, quantise_fault

if TYPE_CHECKING:
    from harness.fp8.quantizer import Quantized


def _change(asked: Asked, quantise: Quantise) -> Quantized:
    from harness.fp8.quantizer import GRAD_OUTPUT

    if asked.role == GRAD_OUTPUT and not bool(asked.source.any()):
        asked = replace(asked, source=torch.full_like(asked.source, float("nan")))
    return quantise(asked)


FAULT = Fault(
    name="zero_gradient_nan",
    breaks="an output's gradient that is zero everywhere becomes NaN everywhere",
    caught_by="case.facts",
    apply=quantise_fault(_change),
    where={"case": "amax_edges", "variant": "infinite"},
)
