"""A probe: hooks that a user registers on a layer, and its ``repr``, inside a region, eagerly and compiled.

Each hook runs once a call, in torch's order, sees the tensors of that call, and what it returns is what goes on. A
module's backward hooks are for eager code alone: torch refuses to compile them without compiled autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cases.ways import ways
from harness.data import draw
from harness.probing import Probing
from harness.program import CaseContext

# What hooks make of input and result, and the gradient that backward starts with: powers of two, all of it is exact.
OF_INPUT, OF_RESULT, OF_GRADIENT = 2.0, 0.5, 4.0
FORWARD = ["before", "after", "weight's gradient"]
BACKWARD = ["before", "after", "before backward", "after backward", "weight's gradient"]


def module_hooks(ctx: CaseContext) -> Callable[[Probing], None]:
    """A layer of its own, made here: its hooks are nobody else's."""
    autocast = ctx.provider.autocast
    rows, width, out = ctx.axes.shape

    def probes(probing: Probing) -> None:
        with torch.random.fork_rng(devices=[ctx.device] if ctx.device.type == "cuda" else []):
            layer = ctx.provider.linear(width, out, bias=True, dtype=ctx.dtype, device=ctx.device)

        def forward(recipes: tuple[Any, ...], x: torch.Tensor) -> torch.Tensor:
            with autocast(enabled=True, recipe=recipes[0]):
                return layer(x)  # type: ignore[no-any-return]

        generator = torch.Generator().manual_seed(ctx.axes.seed)
        x = draw(ctx.axes.data, (rows, width), generator, ctx.dtype, ctx.device).requires_grad_()
        recipes = (ctx.provider.recipe(ctx.axes.recipe),)
        with probing.part("after showing a layer"), autocast(enabled=True, recipe=recipes[0]):
            probing.fact("the class that a layer shows", type(layer).__name__, _shown(layer))
        for how, run in ways(ctx, forward):
            if how == "compiled" and ctx.axes.backend == "inductor":
                continue  # hooks are Dynamo's: the kernels' time buys nothing
            with probing.part(f"after a layer with hooks, {how}"):
                seen = _Seen(layer, backward=how == "eager")
                try:
                    y = run(recipes, x)
                    x.grad = None
                    torch.autograd.backward(y, torch.full_like(y, OF_GRADIENT))
                finally:
                    seen.remove()
                _facts(probing, how, seen, x, y)

    return probes


def _shown(layer: torch.nn.Module) -> str:
    try:
        return repr(layer).partition("(")[0]
    except Exception as raised:  # whatever it is, it becomes the fact
        return f"{type(raised).__name__}: {raised}"


class _Seen:
    """Hooks on a layer, in what order they ran, and the tensors that they were given."""

    def __init__(self, layer: torch.nn.Module, *, backward: bool) -> None:
        self.order: list[str] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self.expected = BACKWARD if backward else FORWARD
        weight = layer.get_parameter("weight")
        self._handles = [
            layer.register_forward_pre_hook(self._before),
            layer.register_forward_hook(self._after),
            weight.register_post_accumulate_grad_hook(self._weight),  # type: ignore[no-untyped-call]
        ]
        if backward:
            self._handles.append(layer.register_full_backward_pre_hook(self._before_backward))
            self._handles.append(layer.register_full_backward_hook(self._after_backward))

    def remove(self) -> None:
        """The layer has no hooks any more."""
        for handle in self._handles:
            handle.remove()

    def _before(self, layer: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        self.order.append("before")
        return (given[0] * OF_INPUT,)

    def _after(self, layer: Any, given: tuple[Any, ...], y: Any) -> Any:
        self.order.append("after")
        self.tensors["input"], self.tensors["result"] = given[0], y
        return y * OF_RESULT

    def _before_backward(self, layer: Any, grads: Any) -> None:
        self.order.append("before backward")
        self.tensors["result's gradient, before"] = grads[0]

    def _after_backward(self, layer: Any, of_input: Any, of_result: Any) -> None:
        self.order.append("after backward")
        self.tensors["input's gradient"], self.tensors["result's gradient"] = of_input[0], of_result[0]

    def _weight(self, weight: torch.Tensor) -> None:
        self.order.append("weight's gradient")


def _facts(probing: Probing, how: str, seen: _Seen, x: torch.Tensor, y: torch.Tensor) -> None:
    probing.fact(f"hooks that ran, {how}", sorted(seen.expected), sorted(seen.order))
    pairs: dict[str, tuple[float, torch.Tensor]] = {"input": (1.0, x * OF_INPUT), "result": (OF_RESULT, y)}
    if seen.expected == BACKWARD:
        arriving = torch.full_like(y, OF_GRADIENT)  # torch hooks up backward behind the other hooks' result
        pairs["result's gradient, before"] = pairs["result's gradient"] = (1.0, arriving)
        pairs["input's gradient"] = (OF_INPUT, torch.zeros_like(x) if x.grad is None else x.grad)
    other = [
        name
        for name, (factor, wanted) in pairs.items()
        if name not in seen.tensors or not torch.equal(seen.tensors[name].detach() * factor, wanted.detach())
    ]
    probing.fact(f"tensors of the call that its hooks were not given, {how}", [], other)
