"""What the faults of single products share: something else happens where an operator multiplies its operands."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.faults.patching import patched

if TYPE_CHECKING:
    import torch

    from harness.providers.protocol import Provider


@dataclass(frozen=True)
class Given:
    """What an operator multiplies: quantised operands ``a`` and ``b``, and the layer's weight."""

    product: str
    recipe: Any
    a: Any
    b: Any
    out_dtype: torch.dtype
    weight: torch.Tensor

    def high_precision(self) -> torch.Tensor:
        """The product of the sources."""
        result: torch.Tensor = (self.a.source @ self.b.source.to(self.a.source.dtype).t()).to(self.out_dtype)
        return result

    def under(self, recipe: Any) -> Given:
        """The same product with both operands quantised by another recipe."""
        from harness.fp8.quantizer import quantize

        a, b = (quantize(operand.source.contiguous(), operand.role, recipe) for operand in (self.a, self.b))
        return dataclasses.replace(self, recipe=recipe, a=a, b=b)


Multiply = Callable[[Given], Any]


def product_fault(
    change: Callable[[Given, Multiply], Any], *, clear: Callable[[], None] = lambda: None
) -> Callable[[Provider], Any]:
    """An ``apply`` for a fault that runs ``change(given, multiply)`` in place of ``multiply(given)``.

    ``clear`` forgets what ``change`` remembers, before and after.
    """

    @contextmanager
    def apply(provider: Provider) -> Iterator[Provider]:
        from harness.fp8 import ops

        multiply = ops.multiply

        def original(g: Given) -> Any:
            return multiply(g.product, g.recipe, g.a, g.b, g.out_dtype, g.weight)

        clear()
        with patched(ops, "multiply", lambda *arguments: change(Given(*arguments), original)):
            yield provider
        clear()

    return apply
