"""One infinity in a gradient, whose amax then is infinite, turns all of it into NaN."""

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

    if asked.role == GRAD_OUTPUT and bool(asked.source.isinf().any()):
        asked = replace(asked, source=torch.full_like(asked.source, float("nan")))
    return quantise(asked)


FAULT = Fault(
    name="infinite_gradient_spreads",
    breaks="an infinity in the gradient of an output makes NaN of every element of it",
    caught_by="case.facts",
    apply=quantise_fault(_change),
    where={"case": "amax_edges", "variant": "infinite"},
)
