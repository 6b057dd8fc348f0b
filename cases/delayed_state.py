"""Probes beside the case delayed_scaling: whose a layer's scales are, and which steps move them.

Copies of a layer have scales of their own, and those of a group of processes are the same on each, from the largest
amax of all (arXiv:2209.05433; Transformer Engine's ``amax_reduction_group``). Inference moves none, nor does a step
whose amax gives no scale: zero or NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from cases.inner_exits import keywords_of
from cases.kept_copies import COPIES
from harness.probing import Probing
from harness.program import features_of
from harness.types import Spec

SIZE, LENGTH = 128, 3
TOPS = {"input": 448.0, "weight": 448.0, "grad_output": 57344.0}
# Constant tensors, so that each amax is known: the weight's, and input and output gradient of a first and a later step.
WEIGHT, FIRST, LATER = 0.5, (7.0, 2.0), (14.0, 8.0)
# Steps whose amaxes of input and output gradient give no scale.
SCALELESS = {"NaN": float("nan"), "zeros": 0.0}
OTHER_RANK = 4.0  # how much larger the amaxes of the group's other process are


def step(
    probing: Probing, layer: torch.nn.Module, values: tuple[float, float], length: int = LENGTH, **region: Any
) -> None:
    """One forward and backward on constant tensors: ``values`` of the input and of the output's gradient."""
    recipe = probing.provider.recipe(Spec("delayed_scaling", (("amax_history_len", length),)))
    opened: Callable[..., AbstractContextManager[Any]] = probing.provider.autocast
    x = torch.full((SIZE, SIZE), values[0], dtype=probing.dtype, device=probing.device, requires_grad=True)
    with opened(enabled=True, recipe=recipe, **region):
        y = layer(x)
    torch.autograd.backward(y, torch.full_like(y, values[1]))


def constant_layer(probing: Probing) -> torch.nn.Module:
    """A layer without bias, all of whose weights are ``WEIGHT``; the generators are as they were."""
    with torch.random.fork_rng(devices=[probing.device] if probing.device.type == "cuda" else []):
        layer = probing.provider.linear(SIZE, SIZE, bias=False, dtype=probing.dtype, device=probing.device)
    with torch.no_grad():
        layer.get_parameter("weight").fill_(WEIGHT)
    return layer


def _scales(probing: Probing, layer: torch.nn.Module) -> Mapping[str, float]:
    kept = features_of(probing.provider)["delayed_scales"](layer)
    return {role: scale for role, (scale, _) in kept.items()}


def _expected(values: tuple[float, float], factor: float = 1.0) -> Mapping[str, float]:
    amaxes = {"input": values[0], "weight": WEIGHT, "grad_output": values[1]}
    return {role: top / (factor * amaxes[role]) for role, top in TOPS.items()}


def kept_scales(probing: Probing) -> None:
    """Inference leaves scales and histories alone; zeros and NaN leave the scale as it was, for their own step only.

    Each history has one row: the largest of more rows would hide a small amax behind an earlier, larger one.
    """
    layer, kept = constant_layer(probing), features_of(probing.provider)["delayed_scales"]
    recipe = probing.provider.recipe(Spec("delayed_scaling", (("amax_history_len", 1),)))
    x = torch.full((SIZE, SIZE), LATER[0], dtype=probing.dtype, device=probing.device)
    with probing.part("after inference, and steps of zeros and NaN"):
        step(probing, layer, FIRST, length=1)
        before = kept(layer)
        with torch.no_grad(), probing.provider.autocast(enabled=True, recipe=recipe):
            layer(x)
        probing.fact("scales and histories after a forward under no_grad", before, kept(layer))
        for what, value in SCALELESS.items():
            step(probing, layer, (value, value), length=1)
            probing.fact(f"scales after a step on {what}", _expected(FIRST), _scales(probing, layer))
        step(probing, layer, LATER, length=1)
        probing.fact("scales one step later", _expected(LATER), _scales(probing, layer))


def copied_scales(probing: Probing) -> None:
    """A copy of a layer begins with the layer's scales and histories, and neither moves the other's from then on.

    Of a provider that says its layers can be copied (feature ``copies``).
    """
    if "copies" not in features_of(probing.provider):
        return
    kept = features_of(probing.provider)["delayed_scales"]
    for how, copied in COPIES.items():
        layer = constant_layer(probing)
        with probing.part(f"after copying a layer with scales by {how}"):
            step(probing, layer, FIRST)
            twin, before = copied(layer), kept(layer)
            probing.fact(f"{how}: scales and histories of the copy", before, kept(twin))
            step(probing, twin, LATER)
            probing.fact(f"{how}: those of the layer, after a step of the copy", before, kept(layer))
            probing.fact(f"{how}: scales of the copy after its step", _expected(LATER), _scales(probing, twin))


def group_scales(probing: Probing) -> None:
    """Scales of a region with a group are those of the largest amax in it, forward and backward; without, its own.

    The group has two processes, of which one is stood in for: whatever is to be reduced, its part is larger.
    """
    if "amax_reduction_group" not in keywords_of(probing.provider.autocast) or not torch.distributed.is_available():
        return
    group, layer = _group(), constant_layer(probing)
    with probing.part("after a step in a group of processes"):
        step(probing, layer, FIRST, amax_reduction_group=group)
        probing.fact("scales in a group", _expected(FIRST, OTHER_RANK), _scales(probing, layer))
        probing.fact("reductions other than to the maximum", [], [op for op in group.ops if op != "MAX"])
        alone, reduced = constant_layer(probing), len(group.ops)
        step(probing, alone, FIRST)
        probing.fact("scales without a group, beside it", _expected(FIRST), _scales(probing, alone))
        probing.fact("reductions without a group", 0, len(group.ops) - reduced)


def _group() -> Any:
    """A process group that needs no other process (torch without distributed has no such class)."""

    class Two(torch.distributed.ProcessGroup):
        def __init__(self) -> None:
            super().__init__(0, 2)  # type: ignore[call-arg]
            self.ops: list[str] = []

        def allreduce(self, tensors: list[torch.Tensor], options: Any) -> None:  # type: ignore[override]
            """Each of ``tensors`` becomes the other process's, in place."""
            to_maximum = options.reduceOp == torch.distributed.ReduceOp.MAX
            self.ops.append("MAX" if to_maximum else str(options.reduceOp))
            for tensor in tensors:
                tensor.mul_(OTHER_RANK)

    return Two()
