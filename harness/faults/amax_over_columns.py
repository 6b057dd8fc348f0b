"""Rowwise scales come from the amaxes of columns: the reduction runs over the wrong axis."""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import quantiser_fault, requantised
from harness.fp8.quantizer import Quantized, decode_scale, encode_scale


def _change(given: Quantized) -> Quantized:
    rows, k = given.source.shape
    if given.block != (1, k):
        return given
    columns = given.source.abs().amax(dim=0).to(torch.float32)
    # Row r reads entry r of a buffer of k entries, and starts again at its end.
    amax = columns[torch.arange(rows, device=columns.device) % k].reshape(rows, 1)
    fp8_max = torch.finfo(given.data.dtype).max
    scale = encode_scale(amax, fp8_max, epsilon=0.0, power_of_2=False)
    return requantised(given, scale, decode_scale(scale))


FAULT = Fault(
    name="amax_over_columns",
    breaks="the scale of a row comes from the amax of a column",
    caught_by="numerics.scales",
    apply=quantiser_fault(_change),
    where={"recipe": "float8_rowwise_scaling", "nesting": "flat", "fullgraph": False},
)
