"""While a graph is captured, scales are those of the warm-up: constants of every replay."""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import quantiser_fault, requantised
from harness.fp8.quantizer import Quantized

_KEPT: dict[tuple[object, ...], torch.Tensor] = {}


def _change(given: Quantized) -> Quantized:
    decode = given.scale.to(torch.float32)
    key = (given.role, given.format, given.source.shape, given.block)
    if not torch.cuda.is_current_stream_capturing():
        _KEPT.setdefault(key, decode.clone())
        return given
    return requantised(given, 1 / _KEPT[key], _KEPT[key])


FAULT = Fault(
    name="scales_of_capture",
    breaks="replays quantise with the scales of the data that the graph was captured on",
    caught_by="case.facts",
    apply=quantiser_fault(_change, clear=_KEPT.clear),
    report="sgl-project/sglang#18002",
    where={"case": "cudagraph", "variant": "captured"},
    needs="cuda",
)
