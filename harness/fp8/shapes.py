"""What an operator demands of its operands, checked before anything is written or computed."""

from __future__ import annotations

import torch

from harness.fp8.recipe import Recipe


def check(recipe: Recipe, x: torch.Tensor, weight: torch.Tensor) -> None:
    """Check x (rows, in_features) against weight (out_features, in_features).

    Every dimension of the three GEMMs must be a multiple of ``recipe.multiple``: 16, MXFP8 32, block scaling 128
    (Transformer Engine's alignment; torch's CPU kernel would take any shape). ToyLinear calls this in eager mode,
    before it records an amax; under torch.compile the operator's fake implementation does, since an error raised
    there reaches the user in both fullgraph modes, with symbolic sizes too.

    Raises:
        ValueError: names the dimension, its value and the multiple; or the dtypes, or the sizes that don't match.
    """
    if x.dtype != weight.dtype:
        raise ValueError(f"input is {x.dtype}, but the weight is {weight.dtype}")
    rows, out_features, in_features = x.shape[0], weight.shape[0], weight.shape[1]
    if x.shape[1] != in_features:
        raise ValueError(f"the input's last dimension is {int(x.shape[1])}, but in_features is {int(in_features)}")
    for dimension, value in (("batch rows", rows), ("in_features", in_features), ("out_features", out_features)):
        if value % recipe.multiple != 0:
            raise ValueError(f"{dimension} is {int(value)}, but {recipe.name} needs a multiple of {recipe.multiple}")
