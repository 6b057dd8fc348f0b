"""Documented refusals that several cases share."""

from __future__ import annotations

from harness.program import CaseContext
from harness.types import Raises

DELAYED_UNDER_COMPILE = Raises("RuntimeError", "not supported under torch.compile")


def delayed_refusal(ctx: CaseContext) -> Raises | None:
    """What compiled code answers to the cell's recipes: delayed scaling compiles nowhere (DESIGN section 6)."""
    specs = (ctx.axes.recipe, ctx.inner)
    return DELAYED_UNDER_COMPILE if any(s is not None and s.name == "delayed_scaling" for s in specs) else None
