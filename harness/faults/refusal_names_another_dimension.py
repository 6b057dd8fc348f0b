"""Whatever dimension is off alignment, the error names ``in_features`` and the size that the layer was made with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import shapes

    refuse = shapes._refuse_dimension

    def mistaken(dimension: str, value: int, recipe_name: str, multiple: int) -> bool:
        del dimension
        return refuse("in_features", value - value % multiple, recipe_name, multiple)

    with patched(shapes, "_refuse_dimension", mistaken):
        yield provider


FAULT = Fault(
    name="refusal_names_another_dimension",
    breaks="the error about a size off alignment names another dimension, and a size that is none",
    caught_by="error.unexpected",
    apply=_apply,
    where={"case": "dynamic_shapes", "variant": "misaligned"},
)
