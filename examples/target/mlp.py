"""Two ways to hand a model of one's own to the harness (docs/target.md; run by configs/target.yaml)."""

from __future__ import annotations

import torch

from harness.fp8 import ToyLinear
from harness.program import CaseContext


class MLP(torch.nn.Module):
    """A pre-norm residual MLP over (batch, tokens, features), as a transformer has it."""

    def __init__(self, norm: torch.nn.Module, up: torch.nn.Module, down: torch.nn.Module) -> None:
        super().__init__()
        self.norm, self.up, self.down = norm, up, down

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def build(ctx: CaseContext) -> tuple[torch.nn.Module, torch.Tensor]:
    """The FP8 layers are those of the provider under test: on the judge's oracle they are the judge's, so that every
    number is held against the specifications."""
    _, width, hidden = ctx.axes.shape
    options = {"bias": True, "dtype": ctx.dtype, "device": ctx.device}
    up, down = ctx.provider.linear(width, hidden, **options), ctx.provider.linear(hidden, width, **options)
    norm = torch.nn.LayerNorm(width, dtype=ctx.dtype, device=ctx.device)
    return MLP(norm, up, down), example(ctx.axes.shape[0], width, ctx.dtype)


def build_alone() -> tuple[torch.nn.Module, torch.Tensor]:
    """A model that knows nothing of the harness: no oracle can be made of it, so FP8 numbers are not judged."""
    model = MLP(torch.nn.LayerNorm(128, dtype=torch.bfloat16), ToyLinear(128, 256), ToyLinear(256, 128))
    return model, example(128, 128, torch.bfloat16)


def example(tokens: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """What an input looks like; the harness draws the values."""
    return torch.zeros(2, tokens // 2, width, dtype=dtype, requires_grad=True)
