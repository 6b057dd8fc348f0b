"""A region leaves a hook on every module there is, the user's own and those of later regions included.

Real code: a probe of activations that is registered by ``torch.nn.modules.module.register_module_forward_hook`` where
one module's own hook was meant, and whose handle is kept to be removed by an event that doesn't come.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.nn.modules.module import register_module_forward_hook

from harness.faults.at_exit import entered_at_exit
from harness.faults.fault import Fault


def _seen(module: Any, args: Any, output: Any) -> None:
    """What the hook does: nothing."""


@contextmanager
def _hook() -> Iterator[None]:
    handle = register_module_forward_hook(_seen)
    try:
        yield
    finally:
        handle.remove()


FAULT = Fault(
    name="module_hooks_left",
    breaks="a hook on every module is left registered",
    caught_by="state.unchanged",
    apply=entered_at_exit(_hook),
)
