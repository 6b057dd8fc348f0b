"""What travels into the operators: the text of a recipe as an opaque value, baked into graphs and guarded on."""

from __future__ import annotations

from harness import torch_compat


class TERecipeKey(torch_compat.OpaqueValue):
    """Transformer Engine's text for the recipe that an operator must quantise with."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TERecipeKey) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"TERecipeKey({self.text!r})"

    def __fx_repr__(self) -> tuple[str, dict[str, type]]:
        """Source text that rebuilds the value in generated code, and the names that the text uses."""
        return repr(self), {"TERecipeKey": TERecipeKey}


TE_RECIPE_KEY_TYPE = torch_compat.register_opaque_value(TERecipeKey)
