"""Whose product it is, where a layer's weight is computed anew for each call (``torch.nn.utils.parametrize``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch.nn.utils import parametrize

from harness.program import Program
from harness.providers.protocol import TapRecord


def derived_weights(program: Program) -> Mapping[str, torch.Tensor]:
    """By module, the weights that lie in no parameter's storage: none of their pointers is that of the next call."""
    storages = {parameter.untyped_storage().data_ptr() for parameter in program.model.parameters()}
    found = {}
    for name, module in program.model.named_modules():
        if parametrize.is_parametrized(module, "weight"):
            weight = module.weight
            if isinstance(weight, torch.Tensor) and weight.untyped_storage().data_ptr() not in storages:
                found[name] = weight.detach()
    return found


def stand_in(place: int) -> int:
    """What stands for ``data_ptr()`` of the derived weight at ``place``: no address."""
    return -1 - place


def attributed(
    records: Sequence[TapRecord], owners: Sequence[int], weights: Mapping[str, torch.Tensor]
) -> tuple[TapRecord, ...]:
    """The records, those of a derived weight with its :func:`stand_in` as their ``weight_ptr``: its forward product is
    known by the weight's values, the others of the step by its pointer, since autograd keeps the weight till then.

    A record of no such weight stays as it is. ``owners``: the step of each record; the weights don't change between.
    """
    if not weights:
        return tuple(records)
    of: dict[tuple[int, int], int] = {}
    for record, step in zip(records, owners, strict=True):
        for place, weight in enumerate(weights.values()):
            if record.product == "fprop" and torch.equal(record.b.source.to(weight.dtype), weight):
                of[step, record.weight_ptr] = stand_in(place)
    told = ((record, of.get((step, record.weight_ptr))) for record, step in zip(records, owners, strict=True))
    return tuple(record if place is None else replace(record, weight_ptr=place) for record, place in told)
