"""Plain functions that Dynamo can't compile whole, one for each way of hiding it, and one that it can."""

from __future__ import annotations

import torch


class Region:
    """A user context manager: the shape of an autocast."""

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


class BreakingRegion(Region):
    def __enter__(self) -> Region:
        torch._dynamo.graph_break()
        return self

    def __exit__(self, *exc: object) -> None:
        torch._dynamo.graph_break()


def prints(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    print("in the middle")
    return x * 2


def branches(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        x = x * 2
    return x * 3


def breaks_in_region(x: torch.Tensor) -> torch.Tensor:
    with Region():
        x = x + 1
        torch._dynamo.graph_break()
        x = x * 2
    return x


def breaks_in_loop(x: torch.Tensor) -> torch.Tensor:
    for i in range(3):
        x = x + i
        torch._dynamo.graph_break()
    return x


def breaks_on_enter_and_exit(x: torch.Tensor) -> torch.Tensor:
    with BreakingRegion():
        x = x + 1
    return x * 2


def callee(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x * 2


def breaks_in_callee(x: torch.Tensor) -> torch.Tensor:
    return callee(x + 1) + 1


def whole(x: torch.Tensor) -> torch.Tensor:
    with Region():
        for i in range(3):
            x = x + i
    return x * 2
