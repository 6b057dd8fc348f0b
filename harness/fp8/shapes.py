"""What an operator demands of its operands, checked before anything is written or computed."""

from __future__ import annotations

from operator import index

import torch

from harness.fp8.recipe import Recipe
from harness.fp8.tracing import run_while_tracing


@run_while_tracing
def _refuse_dimension(dimension: str, value: int, recipe_name: str, multiple: int) -> bool:
    raise ValueError(f"{dimension} is {value}, but {recipe_name} needs a multiple of {multiple}")


@run_while_tracing
def _refuse_width(width: int, in_features: int) -> bool:
    raise ValueError(f"the input's last dimension is {width}, but in_features is {in_features}")


@run_while_tracing
def _refuse_dtype(given: torch.dtype, wanted: torch.dtype) -> bool:
    raise ValueError(f"input is {given}, but the weight is {wanted}")


def check(recipe: Recipe, x: torch.Tensor, weight: torch.Tensor) -> None:
    """Check x (rows, in_features) against weight (out_features, in_features).

    Every dimension of the three GEMMs must be a multiple of ``recipe.multiple``: 16, MXFP8 32, block scaling 128
    (Transformer Engine's alignment; torch's CPU kernel would take any shape). Compiled code raises the same error, in
    both fullgraph modes (see ``tracing``).

    Raises:
        ValueError: names the dimension, its value and the multiple; or the sizes that don't match.
    """
    rows, out_features, in_features = x.shape[0], weight.shape[0], weight.shape[1]
    if x.shape[1] != in_features:
        _refuse_width(index(x.shape[1]), index(in_features))
    # index() makes Dynamo specialise a number: a message can't hold a symbol. With dynamic=True even a recipe's
    # class attribute is symbolic.
    multiple = index(recipe.multiple)
    for dimension, value in (("batch rows", rows), ("in_features", in_features), ("out_features", out_features)):
        if value % multiple != 0:
            _refuse_dimension(dimension, index(value), recipe.name, multiple)


def in_compute_dtype(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The input in the dtype that a layer computes in: the weight's, or under ``torch.autocast`` that one's.

    Transformer Engine's modules do the same; the weight is quantised from its own dtype.

    Raises:
        ValueError: the input has another dtype than the weight, and there is no ``torch.autocast``.
    """
    device = x.device.type
    if torch.is_autocast_enabled(device):
        return x.to(torch.get_autocast_dtype(device))
    if x.dtype != weight.dtype:
        _refuse_dtype(x.dtype, weight.dtype)
    return x
