"""fp8_max / amax is computed in bfloat16, the tensor's own dtype: scales up to 0.4 % off, codes to match.

No result shows it: what is encoded with a scale that is off is decoded with the same one.
"""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import quantiser_fault, requantised
from harness.fp8.quantizer import Quantized


def _change(given: Quantized) -> Quantized:
    if given.scale.element_size() == 1:
        return given
    encode = (1 / given.scale).to(torch.bfloat16).to(torch.float32)
    return requantised(given, encode, 1 / encode)


FAULT = Fault(
    name="scale_in_bf16",
    breaks="scales are computed in bfloat16",
    caught_by="numerics.scales",
    apply=quantiser_fault(_change),
    report="pytorch/pytorch#136181",
    where={"nesting": "flat"},
)
