"""The two ways in which probes run a program of their own: eager and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from harness.program import CaseContext

Forward = Callable[..., torch.Tensor]


def ways(ctx: CaseContext, forward: Forward) -> Iterator[tuple[str, Forward]]:
    """``forward`` as it is, then compiled as the cell says; delayed scaling compiles nowhere (DESIGN section 6)."""
    yield "eager", forward
    if ctx.axes.recipe.name != "delayed_scaling":
        yield "compiled", torch.compile(forward, backend=ctx.axes.backend, fullgraph=ctx.axes.fullgraph)
