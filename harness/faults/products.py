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

    def high_precision_by_hand(self) -> torch.Tensor:
        """The product of the sources in float32, by no kernel that a profiler takes for a GEMM."""
        terms = self.a.source.float()[:, None, :] * self.b.source.float()[None]
        result: torch.Tensor = terms.sum(-1).to(self.out_dtype)
        return result

    def values(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What the operands' codes and scales stand for, float64."""
        return _values(self.a), _values(self.b)

    def show(self, output: torch.Tensor) -> torch.Tensor:
        """Give the tap these operands with ``output``, as if a kernel had returned it; ``output`` itself."""
        from harness.fp8 import tap

        if tap.active():
            phase = "forward" if self.product == "fprop" else "backward"
            tap.emit(tap.Product(self.recipe.key, self.product, phase, self.a, self.b, output, self.weight.data_ptr()))
        return output

    def under(self, recipe: Any) -> Given:
        """The same product with both operands quantised by another recipe."""
        from harness.fp8.quantizer import quantize

        a, b = (quantize(operand.source.contiguous(), operand.role, recipe) for operand in (self.a, self.b))
        return dataclasses.replace(self, recipe=recipe, a=a, b=b)


Multiply = Callable[[Given], Any]


def _values(operand: Any) -> torch.Tensor:
    from harness.fp8 import formats
    from harness.fp8.quantizer import expand_blocks

    packed = operand.format == "e2m1"
    codes = formats.e2m1_decode(formats.e2m1_unpack(operand.data)) if packed else operand.data.float()
    values = codes.double() * expand_blocks(formats.scale_values(operand.scale), operand.block).double()
    return values if operand.global_scale is None else values * operand.global_scale.double()


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


def kernel_fault(change: Callable[[Given], Given]) -> Callable[[Provider], Any]:
    """An ``apply`` for a fault inside the kernel: it multiplies what ``change`` returns, while the tap reports what the
    kernel was given. The product's name, recipe and layer must stay the same."""

    return product_fault(lambda given, multiply: _reported(lambda: multiply(change(given)), a=given.a, b=given.b))


def result_fault(change: Callable[[Given, torch.Tensor], torch.Tensor]) -> Callable[[Provider], Any]:
    """An ``apply`` for a fault in what a kernel stores: ``change(given, result)``, for the caller and the tap alike."""

    def changed(given: Given, multiply: Multiply) -> Any:
        from harness.fp8 import tap

        emit = tap.emit

        def emitting(product: Any) -> None:
            emit(dataclasses.replace(product, output=change(given, product.output)))

        with patched(tap, "emit", emitting):
            output = multiply(given)
        return change(given, output)

    return product_fault(changed)


def replaced(given: Given, multiply: Multiply, output: torch.Tensor) -> torch.Tensor:
    """``output``, after the product's kernel ran for nothing: the profiler sees that kernel, the tap ``output``."""
    _reported(lambda: multiply(given), output=output)
    return output


def reduction_cut(longest: int) -> Callable[[Provider], Any]:
    """An ``apply`` for a fault that leaves out what lies behind the ``longest`` first elements of a reduction."""

    def change(given: Given, multiply: Multiply) -> Any:
        if given.a.source.shape[1] <= longest:
            return multiply(given)
        a, b = (values[:, :longest] for values in given.values())
        return replaced(given, multiply, (a @ b.t()).to(given.out_dtype))

    return product_fault(change)


def _reported(run: Callable[[], Any], **fields: Any) -> Any:
    """``run()``, while the tap is told ``fields`` of what it runs instead of what they are."""
    from harness.fp8 import tap

    emit = tap.emit
    with patched(tap, "emit", lambda product: emit(dataclasses.replace(product, **fields))):
        return run()
