"""The recipes that a matrix may name, each with its fields, their types and their defaults.

This is the plan's own data: the names are Transformer Engine's (``transformer_engine.common.recipe``), the rest is
stated in docs/matrix.md. Defaults are shown to users and never written into a cell: a cell's recipe holds only the
fields that the user wrote, and the implementation under test fills in the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.plan.scalars import Boolean, Integer, NonNegativeFloat, OneOf, Positive

# HYBRID: e4m3 for input and weight, e5m2 for the gradient; E4M3: e4m3 for all. Pure e5m2 is not a training format.
Format = Annotated[str, OneOf("format", ("HYBRID", "E4M3"))]


class Strict(BaseModel):
    """Base of everything a matrix file holds: an unknown key is an error, a value never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def absent(description: str | None = None) -> Any:
    """The default of a key that needn't be written: what is read is ``model_fields_set``, never this value."""
    return Field(default=None, description=description)


class Named(Strict):
    """A thing with a name and fields."""

    name: str


class DelayedScaling(Named):
    """Per-tensor scales from a history of amax."""

    name: Literal["delayed_scaling"]
    margin: Integer = 0
    fp8_format: Format = "HYBRID"
    amax_history_len: Positive = 1024
    amax_compute_algo: Annotated[str, OneOf("algorithm", ("max", "most_recent"))] = "max"


class Float8CurrentScaling(Named):
    """Per-tensor scales from the amax of the very tensor."""

    name: Literal["float8_current_scaling"]
    fp8_format: Format = "HYBRID"
    power_2_scale: Boolean = False
    amax_epsilon: NonNegativeFloat = 0.0


class Float8RowwiseScaling(Named):
    """One scale per row of the operand."""

    name: Literal["float8_rowwise_scaling"]
    fp8_format: Format = "E4M3"
    power_2_scale: Boolean = False
    amax_epsilon: NonNegativeFloat = 0.0


class Float8BlockScaling(Named):
    """1x128 blocks for input and gradient, 128x128 for the weight."""

    name: Literal["float8_block_scaling"]
    fp8_format: Format = "E4M3"
    use_f32_scales: Boolean = False
    amax_epsilon: NonNegativeFloat = 0.0


class MXFP8BlockScaling(Named):
    """1x32 blocks with E8M0 scales; ``ceil`` is Transformer Engine's rounding, ``floor`` is OCP MX v1.0's."""

    name: Literal["mxfp8_block_scaling"]
    fp8_format: Format = "E4M3"
    scale_rounding: Annotated[str, OneOf("rounding", ("ceil", "floor"))] = "ceil"


class NVFP4BlockScaling(Named):
    """e2m1 codes in 1x16 blocks (weight 16x16) with E4M3 scales and one scale for the whole tensor."""

    name: Literal["nvfp4_block_scaling"]
    disable_rht: Boolean = True
    disable_stochastic_rounding: Boolean = True
    disable_2d_quantization: Boolean = False


RECIPE_MODELS: Mapping[str, type[Named]] = {
    "delayed_scaling": DelayedScaling,
    "float8_current_scaling": Float8CurrentScaling,
    "float8_block_scaling": Float8BlockScaling,
    "mxfp8_block_scaling": MXFP8BlockScaling,
    "nvfp4_block_scaling": NVFP4BlockScaling,
    "float8_rowwise_scaling": Float8RowwiseScaling,
}
