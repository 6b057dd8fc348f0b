"""wgrad's input is quantised from the values of fprop's FP8 input, since the high-precision one was not kept.

Those values were scaled along rows; wgrad reduces along columns, where other blocks hold other scales: quantised twice.
"""

from __future__ import annotations

import dataclasses

from harness.faults.fault import Fault
from harness.faults.quantising import Asked, Quantise, quantise_fault
from harness.fp8 import formats
from harness.fp8.quantizer import INPUT, Quantized, expand_blocks

_LAST: dict[str, str] = {}


def _change(asked: Asked, quantise: Quantise) -> Quantized:
    import torch

    before, _LAST["role"] = _LAST.get("role", ""), asked.role
    given = quantise(asked)
    if asked.role != INPUT or before != "grad_output" or given.format == "e2m1":
        return given
    first = quantise(dataclasses.replace(asked, source=asked.source.t().contiguous()))
    values = first.data.to(torch.float32) * expand_blocks(formats.scale_values(first.scale), first.block)
    again = quantise(dataclasses.replace(asked, source=values.to(asked.source.dtype).t().contiguous()))
    return dataclasses.replace(again, source=given.source)


FAULT = Fault(
    name="transpose_of_quantised",
    breaks="wgrad's input is quantised a second time, from its quantised values",
    caught_by="numerics.codes",
    apply=quantise_fault(_change, clear=_LAST.clear),
    where={"recipe": "mxfp8_block_scaling", "nesting": "flat", "fullgraph": False},
)
