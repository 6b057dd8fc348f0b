"""A layer saves its last recipe, as an object, with its weights: torch.load, which reads no code, refuses the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


def _keep(layer: Any, extra: Any) -> None:
    del layer, extra


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import Float8CurrentScaling, ToyLinear

    recipe = Float8CurrentScaling()
    with (
        patched(ToyLinear, "get_extra_state", lambda layer: recipe),
        patched(ToyLinear, "set_extra_state", _keep),
    ):
        yield provider


FAULT = Fault(
    name="recipe_in_state_dict",
    breaks="torch.load refuses a saved state_dict",
    caught_by="case.facts",
    apply=_apply,
    where={"case": "multi_step"},
)
