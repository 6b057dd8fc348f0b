"""The provider over the installed Transformer Engine (docs/transformer_engine.md)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from harness import torch_compat
from harness.providers import te_features, te_gemms, te_recipes, te_stack, te_state, te_support, te_tap
from harness.providers.protocol import Autocast, DoctorFinding, GemmRecord, Provider, Support, TapRecord
from harness.run.host import host_arch
from harness.types import RECIPES, Spec

_PRODUCTS = {"fp8te::linear": "fprop", "fp8te::dgrad": "dgrad", "fp8te::wgrad": "wgrad"}


class TransformerEngineProvider:
    """Transformer Engine behind the provider protocol: its autocast, recipes, checks and state, and a linear layer over
    its functional forward and backward.

    Raises ProviderUnavailable where no usable Transformer Engine is installed.
    """

    name = "transformer_engine"
    fp8_ops = frozenset({"fp8te::linear"})
    strided_weights = False  # a contiguous copy is multiplied, at an address of its own (2.20.2)

    def __init__(self) -> None:
        te_stack.require()
        self.settings: Mapping[str, Any] = {}

    @property
    def autocast(self) -> Autocast:
        """The library's own ``te.autocast``."""
        autocast: Autocast = te_stack.module("pytorch").autocast
        return autocast

    @property
    def features(self) -> Mapping[str, Callable[..., Any]]:
        """What cases may ask for beyond the protocol."""
        return te_features.features()

    def doctor(self) -> Sequence[DoctorFinding]:
        """Versions, what each recipe can do here, and the environment variables that change Transformer Engine."""
        cudnn = te_stack.cudnn_finding()
        findings = [*te_stack.findings(), *([cudnn] if cudnn else [])]
        return [*findings, *self._recipe_findings(), *_environment_findings()]

    def supports(self, recipe: Spec, arch: str) -> Support:
        """The library's belief about ``recipe`` on ``arch``."""
        return te_support.supports(recipe, arch)

    def pretend(self, arch: str) -> AbstractContextManager[None]:
        """Make the library's capability queries answer as ``arch``."""
        return te_support.pretend(arch)

    def recipe(self, spec: Spec) -> Any:
        """A new recipe object of the library.

        Raises:
            ValueError: a recipe or field that Transformer Engine doesn't have.
        """
        te_recipes.remember(spec)
        return te_recipes.make(spec)

    def linear(
        self, in_features: int, out_features: int, *, bias: bool, dtype: torch.dtype, device: torch.device
    ) -> torch.nn.Module:
        """A linear layer over ``BasicLinear``'s functional forward and backward."""
        from harness.providers.te_linear import TELinear  # defines operators, which a process needs once used only

        return TELinear(in_features, out_features, bias=bias, dtype=dtype, device=device)

    def snapshot(self) -> Mapping[str, Any]:
        """The library's global state as comparable values."""
        return te_state.snapshot()

    def reset(self) -> None:
        """The state after import, in place."""
        te_state.reset()

    @contextmanager
    def tap(self) -> Iterator[list[TapRecord]]:
        """Record every GEMM on quantised operands that runs inside."""
        records: list[TapRecord] = []
        with te_tap.listening(records.append):
            yield records

    def product_of(self, op: str, args: tuple[Any, ...]) -> tuple[str, str] | None:
        """Product and recipe label of an operator of the adapter's."""
        product = _PRODUCTS.get(op)
        return None if product is None else (product, te_recipes.known(args[-1].text).label)

    def gemms(self, profile: torch.profiler.profile) -> Sequence[GemmRecord]:
        """The GEMM kernels of a profiled step."""
        ops = torch_compat.profiled_ops(profile)
        return te_gemms.classify(torch_compat.profiled_kernels(profile, ops), ops)

    def _recipe_findings(self) -> list[DoctorFinding]:
        arch = host_arch()
        found = []
        for name in RECIPES:
            belief = self.supports(Spec(name), arch)
            text = f"{belief.level} on {arch}" + (f": {belief.reason}" if belief.reason else "")
            found.append(DoctorFinding(f"transformer_engine {name}", True, text))
        return found


def _environment_findings() -> list[DoctorFinding]:
    """NVTE_* variables change recipes' defaults and arithmetic: they are honoured, and said."""
    names = sorted(name for name in os.environ if name.startswith("NVTE_"))
    return [DoctorFinding("environment", True, f"{name}={os.environ[name]}") for name in names]


if TYPE_CHECKING:
    _conforms: Callable[..., Provider] = TransformerEngineProvider
