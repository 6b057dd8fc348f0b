"""A region that names no recipe takes over that of the region around it."""

from __future__ import annotations

from typing import Any

from harness.faults.entering import enter_fault
from harness.faults.fault import Fault


def _change(arguments: dict[str, Any], state: Any) -> None:
    if arguments["enabled"] and arguments["fp8_recipe"] is None:
        arguments["fp8_recipe"] = state.fp8_recipe


FAULT = Fault(
    name="default_inherits_outer",
    breaks="a region without a recipe runs in its outer region's, not in the default",
    caught_by="fp8.recipe_seen",
    apply=enter_fault(_change),
    where={"case": "default_recipe", "variant": "inside"},
)
