"""What the faults of the quantiser share: replace ``quantize``, or what it returns, in every operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.faults.patching import patched

if TYPE_CHECKING:
    import torch

    from harness.fp8.quantizer import Quantized
    from harness.fp8.recipe import Recipe
    from harness.providers.protocol import Provider


@dataclass(frozen=True)
class Asked:
    """What an operator asks its quantiser for; ``scale`` is delayed scaling's, None elsewhere."""

    source: torch.Tensor
    role: str
    recipe: Recipe
    scale: torch.Tensor | None = None


Quantise = Callable[[Asked], "Quantized"]


def quantise_fault(
    change: Callable[[Asked, Quantise], Quantized], *, clear: Callable[[], None] = lambda: None
) -> Callable[[Provider], Any]:
    """An ``apply`` for a fault that runs ``change(asked, quantise)`` in place of ``quantise(asked)``, in every format.

    ``clear`` forgets what ``change`` remembers, before and after.
    """

    @contextmanager
    def apply(provider: Provider) -> Iterator[Provider]:
        from harness.fp8 import ops

        quantize = ops.quantize  # type: ignore[attr-defined]  # looked up there by every operator

        def original(asked: Asked) -> Quantized:
            given: Quantized = quantize(asked.source, asked.role, asked.recipe, asked.scale)
            return given

        clear()
        with patched(ops, "quantize", lambda *arguments: change(Asked(*arguments), original)):
            yield provider
        clear()

    return apply


def source_fault(role: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Provider], Any]:
    """An ``apply`` for a fault that quantises ``change(source)`` in place of the sources of one role."""

    def changed(asked: Asked, quantise: Quantise) -> Quantized:
        return quantise(replace(asked, source=change(asked.source)) if asked.role == role else asked)

    return quantise_fault(changed)


def without_nan(source: torch.Tensor) -> torch.Tensor:
    """``source`` with zeros in place of NaN, and its infinities."""
    return source.nan_to_num(nan=0.0, posinf=float("inf"), neginf=float("-inf"))


def quantiser_fault(
    change: Callable[[Quantized], Quantized], *, clear: Callable[[], None] = lambda: None
) -> Callable[[Provider], Any]:
    """An ``apply`` for a fault that changes each 8-bit operand after it was quantised.

    ``clear`` forgets what ``change`` remembers, before and after.
    """

    @contextmanager
    def apply(provider: Provider) -> Iterator[Provider]:
        from harness.fp8 import ops

        quantize = ops.quantize  # type: ignore[attr-defined]  # looked up there by every operator

        def changed(*arguments: Any) -> Quantized:
            given = quantize(*arguments)
            return given if given.format == "e2m1" else change(given)

        clear()
        with patched(ops, "quantize", changed):
            yield provider
        clear()

    return apply


def requantised(given: Quantized, encode: Any, decode: Any) -> Quantized:
    """``given`` quantised again from its source: element x becomes cast(x * encode), its decode scale ``decode``.

    ``encode`` and ``decode`` are float32 tensors of the shape of ``given.scale``.
    """
    import dataclasses

    import torch

    from harness.fp8 import formats
    from harness.fp8.quantizer import expand_blocks

    target = formats.E4M3 if given.format == "e4m3" else formats.E5M2
    scaled = given.source.to(torch.float32) * expand_blocks(encode, given.block)
    return dataclasses.replace(given, data=formats.cast_saturating(scaled, target), scale=decode.to(given.scale.dtype))
