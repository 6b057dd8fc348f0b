"""An operator that raises what is no ``Exception``, as Ctrl-C in a notebook does in whatever runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.probing import NotAsDocumented


class Stop(BaseException):
    """Stands for KeyboardInterrupt, GeneratorExit or SystemExit, which a harness must not catch by accident."""


@torch.library.custom_op("fp8case::pass_unless", mutates_args=())
def pass_unless(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    """A copy of ``x``; raises :class:`Stop` where ``flag`` (one element, on the CPU) is not zero."""
    if flag.item():
        raise Stop
    return x.clone()


@pass_unless.register_fake
def _(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    return grad, None


pass_unless.register_autograd(_backward)


@contextmanager
def stopped(where: str) -> Iterator[None]:
    """The body must raise :class:`Stop`, and that very class: what turns it into another hides it from the user.

    Raises:
        NotAsDocumented: nothing was raised. Anything else that was raised goes on.
    """
    try:
        yield
    except Stop:
        return
    raise NotAsDocumented(f"an interrupt in {where}: expected Stop, nothing was raised")
