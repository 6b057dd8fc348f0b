"""Scales are computed on the first use of an operand's shape and kept: right for the first batch, then stale."""

from __future__ import annotations

from harness.faults.fault import Fault
from harness.faults.quantising import quantiser_fault, requantised
from harness.fp8.quantizer import Quantized

_KEPT: dict[tuple[object, ...], Quantized] = {}


def _change(given: Quantized) -> Quantized:
    import torch

    kept = _KEPT.setdefault((given.role, given.format, given.source.shape, given.block), given)
    decode = kept.scale.to(torch.float32)
    return given if kept is given else requantised(given, 1 / decode, decode)


FAULT = Fault(
    name="stale_scale",
    breaks="scales of the first batch are used for all later ones",
    caught_by="numerics.scales",
    apply=quantiser_fault(_change, clear=_KEPT.clear),
    report="NVIDIA/TransformerEngine#1047",
)
