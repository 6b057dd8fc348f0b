"""What travels into the operators: a recipe's key as an opaque value.

torch.compile bakes such a value into the graph as a constant and guards on its equality, so that two recipes never
share a graph and two equal recipe objects always do. It holds one string and nothing else (see ``recipe``).
"""

from __future__ import annotations

from harness import torch_compat


class RecipeKey(torch_compat.OpaqueValue):
    """A recipe's canonical key, e.g. ``mxfp8_block_scaling(fp8_format=E4M3,scale_rounding=ceil)``."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecipeKey) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"RecipeKey({self.key!r})"

    def __fx_repr__(self) -> tuple[str, dict[str, type]]:
        """Source text that rebuilds the value in generated code, and the names that the text uses."""
        return repr(self), {"RecipeKey": RecipeKey}


RECIPE_KEY_TYPE = torch_compat.register_opaque_value(RecipeKey)
