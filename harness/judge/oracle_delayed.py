"""Delayed scaling's memory: one scale and one amax history per layer and role (arXiv:2209.05433; docs/judging.md)."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field

from harness.judge.oracle import FP32_MAX, element_format, settings
from harness.types import Spec


def _f32(x: float) -> float:
    """``x`` rounded to float32; beyond its range infinity."""
    return ctypes.c_float(x).value


@dataclass
class Memory:
    """Scale and history of one tensor. ``history[0]`` is the step that is running."""

    recipe: Spec
    role: str
    scale: float = 1.0
    history: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.history = self.history or [0.0] * int(settings(self.recipe)["amax_history_len"])

    def follow(self, recipe: Spec) -> None:
        """Go on under a recipe with other fields: what was recorded stays, in as many rows as the recipe has.

        Rows are cut off, or added as zeros, at the end (Transformer Engine's ``adjust_amax_history_length``).
        """
        if recipe != self.recipe:
            length = int(settings(recipe)["amax_history_len"])
            self.recipe, self.history = recipe, (self.history + [0.0] * length)[:length]

    def record(self, amax: float) -> None:
        """Fold ``amax`` into the running step (NaN stays)."""
        if not amax <= self.history[0]:
            self.history[0] = _f32(amax)

    def update(self) -> None:
        """Next step's scale from the history, then the history moves on by one step."""
        values = settings(self.recipe)
        amax = self.history[0] if values["amax_compute_algo"] == "most_recent" else _nan_max(self.history)
        if amax != 0 and math.isfinite(amax):
            top = element_format(self.recipe, self.role).max
            scale = _f32(_f32(top / amax) / math.ldexp(1.0, int(values["margin"])))
            self.scale = FP32_MAX if math.isinf(scale) else scale
        self.history = [*self.history[1:], self.history[0]]
        self.history[0] = 0.0


def _nan_max(values: list[float]) -> float:
    return math.nan if any(math.isnan(v) for v in values) else max(values)


class Memories:
    """All memories of a program run. Each is updated once per outermost region or backward in which it took part."""

    def __init__(self) -> None:
        self._memories: dict[tuple[int, str], Memory] = {}
        self._pending: dict[tuple[int, str], Memory] = {}

    def use(self, layer: int, role: str, recipe: Spec, amax: float | None) -> float:
        """Encode scale for a tensor of this step; its amax is recorded for the next. None: inference has none."""
        key = (layer, role)
        memory = self._memories.setdefault(key, Memory(recipe, role))
        memory.follow(recipe)
        if amax is not None:
            memory.record(amax)
            self._pending[key] = memory
        return memory.scale

    def update(self, *roles: str) -> None:
        """End of an outermost region (input, weight) or of a backward (grad_output)."""
        for key in [key for key in self._pending if key[1] in roles]:
            self._pending.pop(key).update()
