"""``load_state_dict`` puts new parameters in the place of a layer's own: an optimizer goes on with the old ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider

if TYPE_CHECKING:
    import torch


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ToyLinear

    load = ToyLinear._load_from_state_dict

    def replacing(
        layer: torch.nn.Module, state: dict[str, Any], prefix: str, metadata: dict[str, Any], *rest: Any
    ) -> None:
        load(layer, state, prefix, {**metadata, "assign_to_params_buffers": True}, *rest)

    with patched(ToyLinear, "_load_from_state_dict", replacing):
        yield provider


FAULT = Fault(
    name="loading_replaces_parameters",
    breaks="load_state_dict replaces the parameters that an optimizer holds",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "multi_step"},
)
