"""What a case gives the harness: a program, and what the program is expected to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.types import Axes, Raises, Spec

if TYPE_CHECKING:
    import torch

    from harness.providers.protocol import ProgramProvider


@dataclass(frozen=True)
class CaseContext:
    """All that a case may use to build its program.

    ``provider`` is the FP8 implementation under test *or* the judge's oracle: the same builder makes both programs,
    so a case never describes its arithmetic twice.
    """

    provider: ProgramProvider
    axes: Axes
    inner: Spec | None
    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True)
class Expects:
    """What a case states about its own program.

    ``fp8_linears`` names, in forward order, the recipe (its label) of every linear that must run in FP8; linears
    outside a region or in a disabled one are not listed. ``graphs`` is the number of forward graphs for one setting.
    ``fp8_gemms`` defaults to three per FP8 linear (fprop, dgrad, wgrad). ``steps`` is how many eager steps, each with
    new data, the numerics need (more than one for recipes with history).
    """

    fp8_linears: tuple[str, ...]
    graphs: int = 1
    fp8_gemms: int | None = None
    steps: int = 1
    raises: Raises | None = None

    @property
    def gemm_count(self) -> int:
        return 3 * len(self.fp8_linears) if self.fp8_gemms is None else self.fp8_gemms


@dataclass(frozen=True)
class Program:
    """A buildable, compilable program.

    ``forward(recipes, *inputs)`` is what gets compiled; it returns one tensor. ``recipes()`` makes equal-but-new recipe
    objects on every call: a provider that keys on identity then recompiles, which the harness sees. ``make_inputs``
    draws one batch (CPU generator; tensors on the context's device, ``requires_grad`` set where gradients are judged).
    Parameters of ``model`` are overwritten by the harness from the cell's seed, on the provider's side and the oracle's
    alike, so names and shapes must not depend on the provider.
    """

    model: torch.nn.Module
    forward: Callable[..., torch.Tensor]
    recipes: Callable[[], tuple[object, ...]]
    make_inputs: Callable[[torch.Generator], tuple[torch.Tensor, ...]]
    expects: Expects


@dataclass(frozen=True)
class Case:
    """A registered case. ``answers`` are public reports (``repository#number``) that the case rests on."""

    name: str
    build: Callable[[CaseContext], Program]
    catches: str
    answers: tuple[str, ...] = ()
