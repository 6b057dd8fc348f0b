"""The reference system: FP8 autocast that works under ``torch.compile``, on the public names of Transformer Engine.

``from harness.fp8 import autocast, ToyLinear`` is enough; of the harness it needs ``harness.torch_compat`` alone.
"""

from harness.fp8.autocast import autocast
from harness.fp8.checkpoint import checkpoint
from harness.fp8.linear import ToyLinear
from harness.fp8.recipe import (
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    Float8RowwiseScaling,
    Format,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
)
from harness.fp8.state import FP8GlobalState, FP8GlobalStateManager
from harness.fp8.support import (
    check_fp8_block_scaling_support,
    check_fp8_support,
    check_mxfp8_support,
    check_nvfp4_support,
)

__all__ = [
    "DelayedScaling",
    "FP8GlobalState",
    "FP8GlobalStateManager",
    "Float8BlockScaling",
    "Float8CurrentScaling",
    "Float8RowwiseScaling",
    "Format",
    "MXFP8BlockScaling",
    "NVFP4BlockScaling",
    "ToyLinear",
    "autocast",
    "check_fp8_block_scaling_support",
    "check_fp8_support",
    "check_mxfp8_support",
    "check_nvfp4_support",
    "checkpoint",
]
