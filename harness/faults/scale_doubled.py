"""Decode scales are twice what the encoding used."""

from __future__ import annotations

import dataclasses

import torch

from harness.faults.fault import Fault
from harness.faults.quantising import quantiser_fault
from harness.faults.seams import BOTH, by_provider, te_scale_fault
from harness.fp8.quantizer import Quantized


def _change(given: Quantized) -> Quantized:
    return dataclasses.replace(given, scale=(given.scale.to(torch.float32) * 2).to(given.scale.dtype))


FAULT = Fault(
    name="scale_doubled",
    breaks="every decode scale is doubled",
    caught_by="numerics.scales",
    apply=by_provider(quantiser_fault(_change), te_scale_fault(lambda scale: scale * 2)),
    providers=BOTH,
)
