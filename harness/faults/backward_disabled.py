"""The layer's backward is hidden from Dynamo: its autograd function can't be traced, and the frame is given up.

Real code: ``torch._dynamo.disable`` on the backward of an ``autograd.Function`` whose bookkeeping (delayed scaling's,
say) Dynamo refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, key: Any) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.key = key
        y: torch.Tensor = torch.ops.fp8ref.linear(x, weight, None, None, key)
        return y

    @staticmethod
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_x = torch.ops.fp8ref.dgrad(grad, weight, None, None, ctx.key)
        return grad_x, torch.ops.fp8ref.wgrad(grad, x, weight, None, None, ctx.key), None


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import FP8GlobalStateManager, ToyLinear
    from harness.fp8.key import RecipeKey

    def forward(self: ToyLinear, x: torch.Tensor) -> torch.Tensor:
        if not FP8GlobalStateManager.is_fp8_enabled():
            return functional.linear(x, self.weight, self.bias)
        key = RecipeKey(FP8GlobalStateManager.get_fp8_recipe().key)
        y: torch.Tensor = _Linear.apply(x, self.weight, key)  # type: ignore[no-untyped-call]
        return y if self.bias is None else y + self.bias

    with patched(ToyLinear, "forward", forward):
        yield provider


FAULT = Fault(
    name="backward_disabled",
    breaks="a backward that Dynamo may not trace: the frame around its forward runs eagerly",
    caught_by="compile.breaks",
    apply=_apply,
    report="pytorch/pytorch#138215",
    where={"fullgraph": False},
)
