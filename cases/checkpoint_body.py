"""A probe: a checkpointed body that is given keyword arguments and draws random numbers, eagerly and compiled.

A recompute that starts from another state of the generators drops other elements than its forward did, and the
gradients are those of a program that nobody ran. torch's own function keeps that state unless it is told not to
(``preserve_rng_state``), and so does Transformer Engine's; both hand keyword arguments on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import dropout

from cases.ways import ways
from harness.probing import Probing
from harness.program import CaseContext, features_of

VALUE, SHIFT = 2.0**-10, 64.0  # a shift beyond any result of the layer: what dropout lets pass is never zero
RATE, USUAL_RATE = 0.5, 0.25  # what is asked for, and what a body would do that is not told
GRADIENT = 1 / (1 - RATE)  # of the shift, wherever the forward kept it


def body_of_a_checkpoint(ctx: CaseContext, layer: torch.nn.Module) -> Callable[[Probing], None]:
    """``layer``, a shift and a dropout in the provider's own checkpoint (feature ``checkpoint``)."""
    checkpoint, autocast = features_of(ctx.provider)["checkpoint"], ctx.provider.autocast
    rows, width, out = ctx.axes.shape

    def body(x: torch.Tensor, *, shift: torch.Tensor | None = None, rate: float = USUAL_RATE) -> torch.Tensor:
        y = layer(x)
        return dropout(y if shift is None else y + shift, rate)

    def forward(recipes: tuple[Any, ...], x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            return checkpoint(body, x, shift=shift, rate=RATE)  # type: ignore[no-any-return]

    def probes(probing: Probing) -> None:
        x = torch.full((rows, width), VALUE, dtype=ctx.dtype, device=ctx.device)
        shift = torch.full((rows, out), SHIFT, dtype=ctx.dtype, device=ctx.device, requires_grad=True)
        gpus = [ctx.device] if ctx.device.type == "cuda" else []
        for how, run in ways(ctx, forward):
            with probing.part(f"after a checkpointed dropout, {how}"), torch.random.fork_rng(devices=gpus):
                torch.manual_seed(ctx.axes.seed)
                y = run((ctx.provider.recipe(ctx.axes.recipe),), x, shift)
                (grad,) = torch.autograd.grad(y, [shift], torch.ones_like(y), allow_unused=True)
                _facts(probing, how, y.detach(), grad)

    return probes


def _facts(probing: Probing, how: str, y: torch.Tensor, grad: torch.Tensor | None) -> None:
    """What became of the shift: ``y`` (rows, N) is zero where it was dropped, and so must be its gradient."""
    seen: Any = "none" if grad is None else sorted(set(grad.flatten().tolist()))
    probing.fact(f"gradients of a keyword argument, {how}", [0.0, GRADIENT], seen)
    if how == "compiled" and probing.axes.backend == "eager":
        return  # torch tells a captured checkpoint to forget the generators and leaves them to AOT, which isn't there
    lost = "all" if grad is None else int(((y == 0) != (grad == 0)).sum())
    probing.fact(f"elements dropped in either of forward and recompute alone, {how}", 0, lost)
