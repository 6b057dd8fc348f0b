"""The provider over ``harness.fp8``, the known-good specimen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from harness import fp8, torch_compat
from harness.fp8 import formats, support
from harness.fp8.key import RecipeKey
from harness.fp8.quantizer import Quantized
from harness.fp8.recipe import RECIPE_CLASSES, Recipe, label_of, make_recipe, recipe_from_key
from harness.fp8.tap import Product, active, listening
from harness.providers.protocol import DoctorFinding, GemmRecord, Operand, Provider, Support, TapRecord
from harness.providers.reference_features import FEATURES
from harness.providers.reference_gemms import classify, is_relevant
from harness.types import Spec

_PRODUCTS = {
    "fp8ref::linear": "fprop",
    "fp8ref::linear_cached": "fprop",
    "fp8ref::dgrad": "dgrad",
    "fp8ref::dgrad_cached": "dgrad",
    "fp8ref::wgrad": "wgrad",
}


def _allocate_skip_tensors() -> None:
    """They live as long as the process: made here, none is new to the state of a program that keeps weights."""
    devices = ["cpu"] + ([f"cuda:{torch.cuda.current_device()}"] if torch.cuda.is_available() else [])
    for device in devices:
        fp8.FP8GlobalStateManager.get_skip_fp8_weight_update_tensor(device)


class ReferenceProvider:
    """``harness.fp8`` behind the provider protocol.

    ``emulate``: recipes without a kernel on an architecture are computed by other kernels there and count as
    supported. The setting is the library's, process-wide; each use of the provider puts its own in force.
    ``rehearse``: cells of an architecture that is not here run on the CPU, whose kernels compute every recipe.
    """

    name = "reference"
    fp8_ops = frozenset({"fp8ref::linear", "fp8ref::linear_cached"})
    autocast = staticmethod(fp8.autocast)
    features = FEATURES

    def __init__(self, emulate: bool = True, rehearse: bool = False) -> None:
        self.settings: Mapping[str, Any] = {"emulate": emulate, "rehearse": rehearse}
        self._emulate = emulate
        self._labels: dict[str, str] = {}
        self._activate()
        _allocate_skip_tensors()

    def doctor(self) -> Sequence[DoctorFinding]:
        """Versions and kernels that the reference system rests on."""
        return [_torch_finding(), _cpu_finding(), *_cuda_findings()]

    def supports(self, recipe: Spec, arch: str) -> Support:
        """The library's belief about ``recipe`` on ``arch``."""
        level = support.level_of(recipe.name, arch, self._emulate, str(recipe.as_dict().get("fp8_format", "")))
        return Support(level.level, level.reason, "UnsupportedRecipeError")

    def pretend(self, arch: str) -> AbstractContextManager[None]:
        """Make support checks believe in ``arch``."""
        self._activate()
        return support.pretend(arch)

    def recipe(self, spec: Spec) -> Recipe:
        """A new recipe object.

        Raises:
            ValueError: unknown recipe or field, or a value out of range.
        """
        self._activate()
        recipe = make_recipe(spec.name, spec.as_dict())
        # Two labels can name equal recipes (a default written out); products are reported under the one asked for last.
        self._labels[recipe.key] = spec.label
        return recipe

    def linear(
        self, in_features: int, out_features: int, *, bias: bool, dtype: torch.dtype, device: torch.device
    ) -> torch.nn.Module:
        """A ToyLinear."""
        self._activate()
        return fp8.ToyLinear(in_features, out_features, bias=bias, dtype=dtype, device=device)

    def snapshot(self) -> Mapping[str, Any]:
        """Every field of the global state, the support checks' belief and the tap, as comparable values."""
        state = fp8.FP8GlobalStateManager.quantization_state
        taken: dict[str, Any] = {"state.id": id(state)}
        for name in type(state).__slots__:
            value = getattr(state, name)
            taken[f"state.{name}"] = _comparable(value)
            if isinstance(value, dict):
                taken[f"state.{name}.id"] = id(value)
        for device, tensor in state.skip_fp8_weight_update_tensor.items():
            taken[f"state.skip_fp8_weight_update_tensor.{device}.id"] = id(tensor)
        taken["support.arch"] = support.BELIEF.arch
        taken["support.emulate"] = support.BELIEF.emulate
        taken["tap.active"] = active()
        return taken

    def reset(self) -> None:
        """The state after import, in place, under this provider's settings."""
        fp8.FP8GlobalStateManager.reset()
        self._activate()

    @contextmanager
    def tap(self) -> Iterator[list[TapRecord]]:
        """Record every FP8 product that runs inside."""
        records: list[TapRecord] = []
        with listening(lambda product: records.append(self._record(product))):
            yield records

    def product_of(self, op: str, args: tuple[Any, ...]) -> tuple[str, str] | None:
        """Product and recipe label of an operator of the library's."""
        product = _PRODUCTS.get(op)
        keys = [argument.key for argument in args if isinstance(argument, RecipeKey)]
        return None if product is None else (product, self._label(keys[0]))

    def gemms(self, profile: torch.profiler.profile) -> Sequence[GemmRecord]:
        """The matrix products of a profiled step, one record per logical product."""
        return classify(torch_compat.profiled_ops(profile, keep=is_relevant))

    def _activate(self) -> None:
        support.set_emulate(self._emulate)

    def _label(self, key: str) -> str:
        return self._labels.get(key) or label_of(recipe_from_key(key))

    def _record(self, product: Product) -> TapRecord:
        return TapRecord(
            recipe=self._label(product.key),
            product=product.product,
            phase=product.phase,
            a=_operand(product.a),
            b=_operand(product.b),
            output=product.output.detach().clone(),
            weight_ptr=product.weight_ptr,
        )


def _torch_finding() -> DoctorFinding:
    opaque = torch_compat.has_opaque_values()
    text = f"torch {torch.__version__}" + ("" if opaque else " cannot pass opaque values to operators")
    return DoctorFinding("torch", opaque, text, "" if opaque else "pip install 'torch>=2.11'")


def _cpu_finding() -> DoctorFinding:
    how = "per-row scales" if torch_compat.cpu_scales_rows() else "per-tensor scales only (slow: 150 ms for 128^3)"
    return DoctorFinding("FP8 GEMM on the CPU", True, f"torch._scaled_mm with {how}")


def _cuda_findings() -> list[DoctorFinding]:
    """One finding for each GPU: its architecture and how each recipe runs on it."""
    if not torch.cuda.is_available():
        return [DoctorFinding("CUDA", True, "no GPU: CPU kernels only, other architectures are traced")]
    found = []
    for index in range(torch.cuda.device_count()):
        arch = support.architecture(f"cuda:{index}")
        levels = [f"{name} {support.level_of(name, arch, support.BELIEF.emulate).level}" for name in RECIPE_CLASSES]
        text = f"{torch.cuda.get_device_name(index)}, {arch}, CUDA {torch.version.cuda}: {', '.join(levels)}"
        found.append(DoctorFinding(f"cuda:{index}", True, text))
    return found


def _operand(given: Quantized) -> Operand:
    """The operand as the kernel got it, unpacked, with its own storage."""
    codes = formats.e2m1_unpack(given.data) if given.format == "e2m1" else given.data.view(torch.uint8)
    return Operand(
        role=given.role,
        format=given.format,
        block=given.block,
        source=given.source.detach().clone(),
        codes=codes.clone(),
        scale=formats.scale_values(given.scale).clone(),
        global_scale=None if given.global_scale is None else given.global_scale.clone(),
    )


def _comparable(value: Any) -> Any:
    """Containers and tensors as nested tuples of plain values; other objects by their text."""
    if isinstance(value, torch.Tensor):
        if torch_compat.is_fake(value):
            return ("fake", str(value.dtype), tuple(value.shape))
        with torch_compat.real_tensors():
            return (str(value.dtype), tuple(value.shape), tuple(value.detach().reshape(-1).tolist()))
    if isinstance(value, dict):
        return tuple((str(key), _comparable(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_comparable(item) for item in value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


if TYPE_CHECKING:
    _conforms: Callable[..., Provider] = ReferenceProvider
