"""Delayed scaling: scales from the amaxes of earlier steps (arXiv:2209.05433). Eager only.

Each module owns a scale and an amax history for input, weight and output gradient. A forward records amaxes and
registers the module's tensors with the open region; leaving the outermost region updates them. A backward records the
gradient's amax, and its end registers and updates it. So exactly one update happens
per region and per backward pass, without a notion of a first module, and the global buffers are empty between steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from harness.fp8 import formats
from harness.fp8.errors import DelayedScalingUnderCompileError
from harness.fp8.recipe import DelayedScaling, Recipe
from harness.fp8.tracing import run_while_tracing

if TYPE_CHECKING:
    from harness.fp8.state import FP8GlobalState

FORWARD, BACKWARD = "forward", "backward"
# Keys of the recompute buffer: scales are added to the first list and taken from the second, in call order.
STASH, REPLAY = "stash", "replay"

_TEXT = (
    "DelayedScaling is not supported under torch.compile: its scales depend on the amaxes of earlier steps, state that "
    "a compiled graph can't update. Use Float8CurrentScaling, or run this region in eager mode"
)


@run_while_tracing
def _refuse() -> bool:
    raise DelayedScalingUnderCompileError(_TEXT)


def refuse_under_compile(recipe: Recipe) -> None:
    """Refuse delayed scaling while torch.compile traces.

    It reaches the user on each call and in both fullgraph modes (see ``tracing``);
    Dynamo's ``suppress_errors`` would hide it.

    Raises:
        DelayedScalingUnderCompileError: in the chain of what torch.compile raises.
    """
    if recipe.delayed() and torch.compiler.is_compiling():
        _refuse()


class DelayedTensors:
    """Scales and histories of one module, all float32 on the weight's device.

    ``scale`` (3,): encode scales of input, weight, output gradient. ``history`` (length, 3): row 0 is the running step.
    ``last_backward``: number of the backward pass that the layer was last part of.
    """

    def __init__(self, length: int, device: torch.device) -> None:
        # Inference tensors could never be updated: a first forward under inference_mode must not make them.
        with torch.inference_mode(False):
            self.scale = torch.ones(3, dtype=torch.float32, device=device)
            self.history = torch.zeros(length, 3, dtype=torch.float32, device=device)
        self.last_backward = -1  # torch's number of the backward pass that the layer was last part of

    def fit(self, length: int, device: torch.device) -> None:
        """Change length or device and keep what was recorded (NVIDIA/TransformerEngine#2620)."""
        with torch.inference_mode(False):
            if self.history.shape[0] != length:
                kept = self.history[:length]
                missing = torch.zeros(length - kept.shape[0], 3, dtype=torch.float32, device=kept.device)
                self.history = torch.cat((kept, missing))
            if self.scale.device != device:
                self.scale, self.history = self.scale.to(device), self.history.to(device)

    def record(self, column: int, values: torch.Tensor) -> None:
        """Fold the amax of ``values`` into the running step."""
        if values.numel():
            self.history[0, column] = torch.maximum(self.history[0, column], values.abs().amax().to(torch.float32))

    def view(self, direction: str) -> tuple[torch.Tensor, torch.Tensor]:
        """History and scale of one direction: (length, 2), (2,) forward; (length, 1), (1,) backward. They share
        storage.
        """
        columns = slice(0, 2) if direction == FORWARD else slice(2, 3)
        return self.history[:, columns], self.scale[columns]


def forward_scales(state: FP8GlobalState, tensors: DelayedTensors) -> torch.Tensor:
    """Scales (2,) of input and weight for this forward: a copy of the current ones, or in a recompute those of the
    forward that it repeats.

    Raises:
        RuntimeError: a recompute runs more delayed-scaling layers than its forward did.
    """
    buffer = state.fp8_tensors_recompute_buffer
    if REPLAY in buffer:
        if not buffer[REPLAY]:
            raise RuntimeError("the recompute runs more delayed-scaling layers than the checkpointed forward did")
        return buffer[REPLAY].pop(0)
    scales = tensors.scale[0:2].clone()
    if STASH in buffer:
        buffer[STASH].append(scales)
    return scales


def register(state: FP8GlobalState, direction: str, tensors: DelayedTensors, recipe: Recipe, group: Any) -> None:
    """Note that ``tensors`` took part in the open region or the ended backward pass; only the first time counts."""
    history, scale = tensors.view(direction)
    for key, histories in state.global_amax_history_buffer.items():
        if key.startswith(direction) and any(known.data_ptr() == history.data_ptr() for known in histories):
            return
    key = f"{direction} {recipe.key} group={id(group) if group is not None else None}"
    state.autocast_arguments[key] = (recipe, group)
    state.global_amax_buffer.setdefault(key, []).append(history[0])
    state.global_amax_history_buffer.setdefault(key, []).append(history)
    state.global_scale_buffer.setdefault(key, []).append(scale)


def update(
    recipe: Recipe,
    group: Any,
    amaxes: list[torch.Tensor],
    histories: list[torch.Tensor],
    scales: list[torch.Tensor],
    forward: bool,
) -> None:
    """New scales from the histories, then the histories move on by one step. Everything changes in place.

    ``amaxes[i]`` (n,) is row 0 of ``histories[i]`` (length, n); ``scales[i]`` is (n,). With a group, row 0 becomes
    the largest amax over its ranks first.

    Raises:
        TypeError: ``recipe`` isn't delayed scaling.
    """
    if not isinstance(recipe, DelayedScaling):
        raise TypeError(f"only delayed scaling has histories to update, got {recipe!r}")
    target = recipe.fp8_format.forward if forward else recipe.fp8_format.backward
    for running, history, scale in zip(amaxes, histories, scales, strict=True):
        if group is not None:
            reduced = running.contiguous()
            torch.distributed.all_reduce(reduced, op=torch.distributed.ReduceOp.MAX, group=group)
            running.copy_(reduced)
        amax = history.amax(dim=0) if recipe.amax_compute_algo == "max" else running.clone()
        scale.copy_(next_scale(amax, scale, target.max, recipe.margin))
        history.copy_(history.roll(-1, dims=0))
        running.zero_()


def next_scale(amax: torch.Tensor, previous: torch.Tensor, fp8_max: float, margin: int) -> torch.Tensor:
    """fp8_max / amax / 2^margin in float32; ``previous`` where amax is zero or not finite, float32's maximum on
    overflow.
    """
    scale = torch.full_like(amax, fp8_max) / amax / torch.full_like(amax, 2.0**margin)
    scale = torch.where(scale.isinf(), torch.full_like(scale, formats.FP32_MAX), scale)
    return torch.where((amax == 0) | ~amax.isfinite(), previous, scale)
