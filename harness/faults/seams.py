"""Where faults take hold of a provider: its layer, its region, its products, its quantised tensors.

What is patched on Transformer Engine is the library's autocast, as the provider hands it out, and the provider's own
layer and operators (harness/providers/te_linear.py, te_ops.py), through which every product and tensor of its goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from harness.faults.patching import patched

if TYPE_CHECKING:
    import torch

    from harness.providers.protocol import Provider

Apply = Callable[["Provider"], "AbstractContextManager[Provider]"]

TRANSFORMER_ENGINE = "transformer_engine"
BOTH = ("reference", TRANSFORMER_ENGINE)


def by_provider(reference: Apply, transformer_engine: Apply) -> Apply:
    """An ``apply`` that breaks either provider by its own seam.

    Raises (when applied):
        ValueError: another provider.
    """
    applies = {"reference": reference, TRANSFORMER_ENGINE: transformer_engine}

    def apply(provider: Provider) -> AbstractContextManager[Provider]:
        if provider.name not in applies:
            raise ValueError(f"this fault works on {', '.join(applies)}, not on {provider.name}")
        return applies[provider.name](provider)

    return apply


def layer_of(provider: Provider) -> Any:
    """The class of a provider's linear layers.

    Raises:
        ValueError: a provider whose layers are not known.
    """
    if provider.name == TRANSFORMER_ENGINE:
        from harness.providers.te_linear import TELinear

        return TELinear
    if provider.name != "reference":
        raise ValueError(f"the layers of {provider.name} are not known to faults")
    from harness.fp8 import ToyLinear

    return ToyLinear


def layer_fault(change: Callable[[Any], Any]) -> Apply:
    """An ``apply`` with ``change(forward)`` in the place of the layer's ``forward(self, x)``, on either provider."""

    @contextmanager
    def apply(provider: Provider) -> Iterator[Provider]:
        layer = layer_of(provider)
        with patched(layer, "forward", change(layer.forward)):
            yield provider

    return apply


def te_region_fault(derive: Callable[[Any, Any], Any]) -> Apply:
    """An ``apply`` with ``derive(autocast, manager)`` in the place of Transformer Engine's autocast.

    ``autocast`` is the library's class, whose instances are context managers, ``manager`` holds its state. A reset
    mends the state.
    """

    @contextmanager
    def apply(provider: Provider) -> Iterator[Provider]:
        from harness.providers import te_stack

        manager = te_stack.module("pytorch.quantization").FP8GlobalStateManager
        broken = derive(provider.autocast, manager)
        with patched(type(provider), "autocast", property(lambda self: broken)):
            yield provider
        provider.reset()

    return apply


def te_product_fault(
    change: Callable[[str, Callable[[], torch.Tensor], Callable[[], torch.Tensor]], torch.Tensor],
    *,
    clear: Callable[[], None] = lambda: None,
) -> Apply:
    """An ``apply`` in which each product of Transformer Engine's comes out as ``change(product, own, plain)``.

    Args:
        change: ``product`` is fprop, dgrad or wgrad, ``own()`` the library's result, ``plain()`` that of the
            unquantised operands in their dtype. ``own`` runs the library: where it isn't called there is no FP8 GEMM.
        clear: forgets what ``change`` remembers, before and after.
    """

    @contextmanager
    def apply(provider: Provider) -> Iterator[Provider]:
        from harness.providers import te_ops

        fprop, backward = te_ops.fprop, te_ops.backward

        def changed_fprop(x: torch.Tensor, weight: torch.Tensor, text: str, of: Any) -> tuple[Any, Any, Any]:
            library = _Once(lambda: fprop(x, weight, text, of))
            y = change("fprop", lambda: library()[0], lambda: x @ weight.t().to(x.dtype))
            # A backward of delayed scaling wants the quantised tensors too, whatever became of the product.
            return (
                (y, *library()[1:])
                if library.ran
                else (y, te_ops.quantised(x, of.input), te_ops.quantised(weight, of.weight))
            )

        def changed_backward(grad: torch.Tensor, saved: Any, text: str, of: Any) -> tuple[Any, Any]:
            library = _Once(lambda: backward(grad, saved, text, of))
            grad_x = grad_weight = None
            if saved.w_quantised is not None:
                grad_x = change("dgrad", lambda: library()[0], lambda: grad @ saved.weight.to(grad.dtype))
            if saved.x_quantised is not None:
                grad_weight = change("wgrad", lambda: library()[1], lambda: grad.t() @ saved.x.to(grad.dtype))
            return grad_x, grad_weight

        clear()
        with patched(te_ops, "fprop", changed_fprop), patched(te_ops, "backward", changed_backward):
            yield provider
        clear()

    return apply


class _Once:
    """A call that is made at most once, however often its result is asked for."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call, self._result, self.ran = call, None, False

    def __call__(self) -> Any:
        if not self.ran:
            self._result, self.ran = self._call(), True
        return self._result


# Where Transformer Engine's quantised tensors keep their decode scales.
_DECODE_SCALES = ("_scale_inv", "_rowwise_scale_inv", "_columnwise_scale_inv")


def te_scale_fault(change: Callable[[torch.Tensor], torch.Tensor]) -> Apply:
    """An ``apply`` that changes the decode scales of what the provider quantises, which is all of the backward's."""

    @contextmanager
    def apply(provider: Provider) -> Iterator[Provider]:
        from harness.providers import te_ops

        quantised = te_ops.quantised

        def changed(tensor: torch.Tensor, quantizer: Any) -> Any:
            made = quantised(tensor, quantizer)
            for name in _DECODE_SCALES:
                scale = getattr(made, name, None)
                if scale is not None:
                    setattr(made, name, change(scale))
            return made

        with patched(te_ops, "quantised", changed):
            yield provider

    return apply
