"""A weight that is no parameter is read behind autograd's back: what it was computed from is never trained."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.seams import layer_fault


class _Reading:
    """A layer whose weight is read without its history."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self.weight = layer.weight.detach()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layer, name)


def _change(forward: Any) -> Any:
    from torch.nn.utils import parametrize

    def reading(self: Any, x: Any) -> Any:
        return forward(_Reading(self) if parametrize.is_parametrized(self, "weight") else self, x)

    return reading


FAULT = Fault(
    name="computed_weight_gradient_lost",
    breaks="parameters that a layer's weight is computed from get no gradient",
    caught_by="fp8.recipe_seen",
    apply=layer_fault(_change),
    where={"case": "derived", "variant": "sliced"},
)
