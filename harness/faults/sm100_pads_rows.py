"""On sm100 the fake MXFP8 product has rows padded to 128, as its scales in tiled order do; the real one has not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import ops, support
    from harness.fp8.recipe import MXFP8BlockScaling, Recipe

    fake_shape = ops.fake_shape

    def padded(recipe: Recipe, x: torch.Tensor, weight: torch.Tensor) -> tuple[int, int]:
        rows, columns = fake_shape(recipe, x, weight)
        wrong = support.BELIEF.arch == "sm100" and isinstance(recipe, MXFP8BlockScaling)
        return (-(-rows // 128) * 128 if wrong else rows, columns)

    with patched(ops, "fake_shape", padded):
        yield provider


FAULT = Fault(
    name="sm100_pads_rows",
    breaks="on sm100 alone: the fake MXFP8 product has another shape than the real one",
    caught_by="error.unexpected",
    apply=_apply,
    report="pytorch/pytorch#161127",
    where={"arch": "sm100", "recipe": "mxfp8_block_scaling", "shape": [96, 256, 128]},
)
