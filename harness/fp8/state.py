"""The process-wide autocast state and its manager. Names and meanings are Transformer Engine's.

The state is one object for the life of the process: graphs that torch.compile made hold guards on it and on its
containers, so everything here changes it in place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from harness import torch_compat
from harness.fp8 import delayed, support
from harness.fp8.recipe import RECIPE_CLASSES, Recipe
from harness.fp8.tracing import run_while_tracing


@run_while_tracing
def _refuse_type(name: str) -> bool:
    raise TypeError(f"recipe must be a recipe of harness.fp8, got {name}")


@dataclass(slots=True)
class FP8GlobalState:
    """What ``autocast`` sets. Nothing here is read by an operator: operators get what they need as arguments.

    ``is_first_fp8_module`` is True from the entry of an outermost region until
    :meth:`FP8GlobalStateManager.is_first_fp8_module` is asked. ToyLinear never asks (the update of delayed scales
    hangs on the region's exit and on the backward pass, see ``delayed``), so it costs no second graph.
    ``global_*_buffer`` hold the tensors of modules that took part in the open region (keys ``forward...``) or in a
    backward pass that is just ending (``backward...``) and are empty otherwise; ``autocast_arguments`` holds the recipe
    and group of each of those keys. ``fp8_tensors_recompute_buffer`` holds the scales of a checkpointed forward while
    it runs or is recomputed (see ``checkpoint``). ``skip_fp8_weight_update_tensor`` has one float32 tensor of one
    element per device, allocated once.
    """

    fp8_enabled: bool = False
    fp8_calibration: bool = False
    fp8_recipe: Recipe | None = None
    fp8_distributed_group: Any = None
    fp8_parameters: bool = False
    high_precision_init_val: bool = False
    is_first_fp8_module: bool = False
    fp8_graph_capturing: bool = False
    autocast_depth: int = 0
    global_amax_buffer: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    global_amax_history_buffer: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    global_scale_buffer: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    fp8_tensors_recompute_buffer: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    autocast_arguments: dict[str, tuple[Recipe, Any]] = field(default_factory=dict)
    skip_fp8_weight_update_tensor: dict[str, torch.Tensor] = field(default_factory=dict)


# What a region owns, in this order: enabled, calibration, recipe, group, first module, graph capturing, depth.
AutocastState = tuple[bool, bool, "Recipe | None", Any, bool, bool, int]


class FP8GlobalStateManager:
    """Reads and writes :class:`FP8GlobalState`. Every check precedes every write."""

    quantization_state: ClassVar[FP8GlobalState] = FP8GlobalState()

    @classmethod
    def reset(cls) -> None:
        """The state after import, in place: objects that a compiled graph may hold stay the same."""
        state = cls.quantization_state
        cls.set_autocast_state((False, False, None, None, False, False, 0))
        state.fp8_parameters = False
        state.high_precision_init_val = False
        for container in (
            state.global_amax_buffer,
            state.global_amax_history_buffer,
            state.global_scale_buffer,
            state.fp8_tensors_recompute_buffer,
            state.autocast_arguments,
        ):
            container.clear()
        for tensor in state.skip_fp8_weight_update_tensor.values():
            tensor.zero_()

    @classmethod
    def autocast_enter(
        cls,
        enabled: bool = False,
        calibrating: bool = False,
        fp8_recipe: Recipe | None = None,
        fp8_group: Any = None,
        _graph: bool = False,
    ) -> None:
        """Open a region. A disabled region that doesn't calibrate needs no recipe, and none is built for it.

        Raises:
            TypeError: ``fp8_recipe`` isn't a recipe of this package.
            UnsupportedRecipeError: the current device can't run the recipe.
            DelayedScalingUnderCompileError: delayed scaling while torch.compile traces.
        """
        if enabled or calibrating:
            fp8_recipe = cls.get_default_fp8_recipe() if fp8_recipe is None else fp8_recipe
            if not isinstance(fp8_recipe, Recipe):
                _refuse_type(type(fp8_recipe).__name__)
            delayed.refuse_under_compile(fp8_recipe)
            support.require(fp8_recipe, support.current_device())
        state = cls.quantization_state
        first = True if state.autocast_depth == 0 else state.is_first_fp8_module
        depth = state.autocast_depth + 1
        cls.set_autocast_state((enabled, calibrating, fp8_recipe, fp8_group, first, _graph, depth))

    @classmethod
    def autocast_exit(cls, enabled: bool, _graph: bool) -> None:
        """Close a region whose outer state has been put back by :meth:`set_autocast_state`; ``enabled`` is what it was
        opened with (kept for callers of Transformer Engine's method, nothing depends on it).

        Leaving the outermost region updates the scales of the delayed-scaling modules that ran in it.
        """
        state = cls.quantization_state
        if state.autocast_depth == 0 and not _graph and state.global_amax_buffer:
            cls.reduce_and_update_fp8_tensors(forward=True)

    @classmethod
    def get_autocast_state(cls) -> AutocastState:
        """What the open region set, for :meth:`set_autocast_state`."""
        state = cls.quantization_state
        return (
            state.fp8_enabled,
            state.fp8_calibration,
            state.fp8_recipe,
            state.fp8_distributed_group,
            state.is_first_fp8_module,
            state.fp8_graph_capturing,
            state.autocast_depth,
        )

    @classmethod
    def set_autocast_state(cls, saved: AutocastState) -> None:
        """Put back absolute values, whatever happened in between (a reset inside the region, say)."""
        state = cls.quantization_state
        state.fp8_enabled = saved[0]
        state.fp8_calibration = saved[1]
        state.fp8_recipe = saved[2]
        state.fp8_distributed_group = saved[3]
        state.is_first_fp8_module = saved[4]
        state.fp8_graph_capturing = saved[5]
        state.autocast_depth = saved[6]

    @classmethod
    def is_fp8_enabled(cls) -> bool:
        """True inside an enabled region."""
        return cls.quantization_state.fp8_enabled

    @classmethod
    def is_fp8_calibration(cls) -> bool:
        """True inside a calibrating region."""
        return cls.quantization_state.fp8_calibration

    @classmethod
    def is_first_fp8_module(cls) -> bool:
        """True once per outermost region: asking clears the flag."""
        first = cls.quantization_state.is_first_fp8_module
        cls.quantization_state.is_first_fp8_module = False
        return first

    @classmethod
    def fp8_graph_capturing(cls) -> bool:
        """True inside a region that was opened for CUDA graph capture."""
        return cls.quantization_state.fp8_graph_capturing

    @classmethod
    def get_fp8_recipe(cls) -> Recipe:
        """The region's recipe, or the device's default where none is set."""
        recipe = cls.quantization_state.fp8_recipe
        return cls.get_default_fp8_recipe() if recipe is None else recipe

    @classmethod
    def get_default_fp8_recipe(cls) -> Recipe:
        """A new default recipe: MXFP8 where native, current scaling on 12.x, delayed scaling elsewhere."""
        return RECIPE_CLASSES[support.default_recipe_on(support.current_device(), support.BELIEF.arch)]()

    @classmethod
    def get_fp8_group(cls) -> Any:
        """The process group over which amaxes are reduced, or None."""
        return cls.quantization_state.fp8_distributed_group

    @classmethod
    def reduce_and_update_fp8_tensors(cls, forward: bool = True) -> None:
        """Update scales and histories of all registered tensors of one direction, then forget them.

        The one place where amax buffers, histories and scales change together; the forward pass, the backward pass and
        every group go through it.
        """
        state = cls.quantization_state
        prefix = delayed.FORWARD if forward else delayed.BACKWARD
        for key in [key for key in state.global_amax_buffer if key.startswith(prefix)]:
            recipe, group = state.autocast_arguments.pop(key)
            amaxes = state.global_amax_buffer.pop(key)
            histories = state.global_amax_history_buffer.pop(key)
            scales = state.global_scale_buffer.pop(key)
            delayed.update(recipe, group, amaxes, histories, scales, forward)

    @classmethod
    def get_skip_fp8_weight_update_tensor(cls, device: torch.device | str | None = None) -> torch.Tensor:
        """One float32 element on ``device``: 1 means that cached quantised weights stay as they are.

        Allocated once per device and never replaced, so that a captured graph always reads a live tensor.
        """
        where = support.current_device() if device is None else str(device)
        buffers = cls.quantization_state.skip_fp8_weight_update_tensor
        if where not in buffers:
            with torch_compat.real_tensors(), torch.inference_mode(False):
                buffers[where] = torch.zeros(1, dtype=torch.float32, device=where)
        return buffers[where]

    @classmethod
    def set_skip_fp8_weight_update_tensor(cls, skip: bool, device: torch.device | str | None = None) -> None:
        """Write the flag of ``device``, in place."""
        cls.get_skip_fp8_weight_update_tensor(device).fill_(1.0 if skip else 0.0)
