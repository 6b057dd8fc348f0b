"""dgrad multiplies by the weight where its transpose is meant. It fits square weights alone, and no shape tells."""

from __future__ import annotations

from harness.faults.fault import Fault
from harness.faults.quantising import Asked, Quantise, quantise_fault
from harness.fp8.quantizer import GRAD_OUTPUT, WEIGHT, Quantized

_LAST: dict[str, str] = {}


def _change(asked: Asked, quantise: Quantise) -> Quantized:
    import dataclasses

    before, _LAST["role"] = _LAST.get("role", ""), asked.role
    square = asked.source.shape[0] == asked.source.shape[1]
    if asked.role == WEIGHT and before == GRAD_OUTPUT and square:
        return quantise(dataclasses.replace(asked, source=asked.source.t().contiguous()))
    return quantise(asked)


FAULT = Fault(
    name="weight_not_transposed",
    breaks="dgrad uses a square weight without transposing it",
    caught_by="numerics.program",
    apply=quantise_fault(_change, clear=_LAST.clear),
    where={"recipe": "float8_block_scaling", "nesting": "flat", "shape": [128, 128, 128]},
)
