"""A layer's ``state_dict`` holds its weight alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider

if TYPE_CHECKING:
    import torch


def _save_weight(layer: torch.nn.Module, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
    weight = layer.get_parameter("weight")
    destination[prefix + "weight"] = weight if keep_vars else weight.detach()


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ToyLinear

    with patched(ToyLinear, "_save_to_state_dict", _save_weight):
        yield provider


FAULT = Fault(
    name="bias_not_saved",
    breaks="state_dict leaves out the bias",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "multi_step"},
)
