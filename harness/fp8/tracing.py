"""A typed form of the one torch.compile mark that the reference system rests on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

_Function = TypeVar("_Function", bound=Callable[..., object])


def run_while_tracing(function: _Function) -> _Function:
    """Dynamo calls ``function`` itself and bakes its result in (``torch.compiler.assume_constant_result``).

    Two uses: a check whose inner workings (caches, device queries) must not be traced, and an error that must reach
    the user. What ``function`` raises reaches the caller of compiled code with and without fullgraph, on each call,
    with its text in ``str(e)`` and itself in the exception's chain; a plain ``raise`` would end fullgraph=False
    tracing quietly in eager mode. Everything that the result depends on must be an argument, or the baked result goes
    stale.
    """
    marked: _Function = torch.compiler.assume_constant_result(function)  # type: ignore[no-untyped-call]
    return marked
