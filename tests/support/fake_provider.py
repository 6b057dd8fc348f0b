"""A small FP8 provider on a custom op of its own, whose every behaviour a test can break.

Arithmetic: operands are cast to e4m3 as they are and multiplied by ``torch._scaled_mm`` with unit scales. The autocast
state is a dataclass singleton, the context manager a generator, the recipe reaches the op as an argument: the shape of
Transformer Engine's design, small enough to read.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from harness import torch_compat
from harness.program import CaseContext, Expects, Program
from harness.providers.protocol import DoctorFinding, GemmRecord, Operand, ProgramProvider, Support, TapRecord
from harness.types import Axes, Raises, Spec

FP8_OP = "fakefp8::linear"
SIZE = 16  # rows and columns of everything


@dataclasses.dataclass
class State:
    """Process-global autocast state."""

    enabled: bool = False
    recipe: Any = None
    depth: int = 0
    counter: int = 0
    arch: str = ""


STATE = State()
_RECEIVERS: list[list[TapRecord]] = []


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A recipe is its label."""

    label: str


class Unsupported(RuntimeError):
    """The documented error for a recipe that the architecture lacks."""


class NoCompile(RuntimeError):
    """The documented error for a recipe that refuses torch.compile."""


def _product(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(a @ b.T, codes of a, codes of b), both operands reduction-last."""
    one = torch.ones((), device=a.device)
    qa, qb = (t.contiguous().to(torch.float8_e4m3fn) for t in (a, b))
    out = torch._scaled_mm(qa, qb.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    return out, qa, qb


def _multiply(product: str, phase: str, recipe: str, weight: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    out, qa, qb = _product(a[1], b[1])
    for records in _RECEIVERS:
        operands = [
            Operand(role, "e4m3", tuple(source.shape), source.clone(), codes.view(torch.uint8), torch.ones(1, 1))
            for (role, source), codes in zip((a, b), (qa, qb), strict=True)
        ]
        records.append(TapRecord(recipe, product, phase, operands[0], operands[1], out.clone(), weight.data_ptr()))
    return out


@torch.library.custom_op(FP8_OP, mutates_args=())
def _linear(x: torch.Tensor, w: torch.Tensor, recipe: str) -> torch.Tensor:
    phase = "recompute" if torch_compat.in_backward() else "forward"
    return _multiply("fprop", phase, recipe, w, ("input", x), ("weight", w))


@torch.library.custom_op("fakefp8::linear_backward", mutates_args=())
def _linear_backward(
    g: torch.Tensor, x: torch.Tensor, w: torch.Tensor, recipe: str
) -> tuple[torch.Tensor, torch.Tensor]:
    dx = _multiply("dgrad", "backward", recipe, w, ("grad_output", g), ("weight", w.t()))
    dw = _multiply("wgrad", "backward", recipe, w, ("grad_output", g.t()), ("input", x.t()))
    return dx, dw


@_linear.register_fake
def _(x: torch.Tensor, w: torch.Tensor, recipe: str) -> torch.Tensor:
    return x.new_empty(x.shape[0], w.shape[0])


@_linear_backward.register_fake
def _(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor, recipe: str) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), torch.empty_like(w)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, w, ctx.recipe = inputs
    ctx.save_for_backward(x, w)


def _backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
    x, w = ctx.saved_tensors
    return *_linear_backward(g, x, w, ctx.recipe), None


_linear.register_autograd(_backward, setup_context=_setup)


class FakeLinear(torch.nn.Module):
    """FP8 inside an enabled region, high precision elsewhere."""

    def __init__(self, in_features: int, out_features: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features, dtype=dtype, device=device))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not STATE.enabled:
            return torch.nn.functional.linear(x, self.weight)
        return torch.ops.fakefp8.linear(x, self.weight, STATE.recipe.label)  # type: ignore[no-any-return]


def _check_support(label: str, arch: str) -> None:
    if label == "mxfp8_block_scaling" and arch == "sm90":
        raise Unsupported(f"{label} needs a Blackwell GPU")


_checked = torch.compiler.assume_constant_result(_check_support)


@torch.compiler.assume_constant_result
def _refuse() -> None:
    raise NoCompile("delayed scaling is not supported under torch.compile")


@contextlib.contextmanager
def autocast(enabled: bool = True, recipe: Any = None) -> Iterator[None]:
    """The good one: every check before any write, absolute values restored."""
    if enabled:
        _checked(recipe.label, STATE.arch)
        if recipe.label == "delayed_scaling" and torch.compiler.is_compiling():
            _refuse()
    saved = (STATE.enabled, STATE.recipe, STATE.depth)
    STATE.enabled, STATE.recipe, STATE.depth = enabled, recipe, STATE.depth + 1
    try:
        yield
    finally:
        STATE.enabled, STATE.recipe, STATE.depth = saved


class FakeProvider:
    """The provider. Tests replace attributes or pass another ``autocast``."""

    name = "fake"
    settings: Mapping[str, Any] = {}
    fp8_ops = frozenset({FP8_OP})

    def __init__(self, autocast: Callable[..., Any] = autocast) -> None:
        self.autocast = autocast
        self.leaked = 0

    def doctor(self) -> Sequence[DoctorFinding]:
        return ()

    def supports(self, recipe: Spec, arch: str) -> Support:
        unsupported = recipe.name == "mxfp8_block_scaling" and arch == "sm90"
        return Support("unsupported", "needs a Blackwell GPU", "Unsupported") if unsupported else Support("native")

    @contextlib.contextmanager
    def pretend(self, arch: str) -> Iterator[None]:
        before, STATE.arch = STATE.arch, arch
        try:
            yield
        finally:
            STATE.arch = before

    def recipe(self, spec: Spec) -> Recipe:
        return Recipe(spec.label)

    def linear(
        self, in_features: int, out_features: int, *, bias: bool, dtype: torch.dtype, device: torch.device
    ) -> torch.nn.Module:
        return FakeLinear(in_features, out_features, dtype, device)

    def snapshot(self) -> Mapping[str, Any]:
        return {**dataclasses.asdict(STATE), "state.id": id(STATE), "leaked": self.leaked}

    def reset(self) -> None:
        for field in dataclasses.fields(State):
            setattr(STATE, field.name, field.default)

    @contextlib.contextmanager
    def tap(self) -> Iterator[list[TapRecord]]:
        records: list[TapRecord] = []
        _RECEIVERS.append(records)
        try:
            yield records
        finally:
            _RECEIVERS.remove(records)

    def product_of(self, op: str, args: tuple[Any, ...]) -> tuple[str, str] | None:
        return ("fprop", args[2]) if op == FP8_OP else None

    def gemms(self, profile: torch.profiler.profile) -> Sequence[GemmRecord]:
        return [
            GemmRecord(op.name, op.dtypes[0], op.dtypes[1], "fp8_native")
            for op in torch_compat.profiled_ops(profile)
            if op.name == "aten::_scaled_mm"
        ]


def identity_layers(width: int = SIZE) -> torch.nn.ModuleList:
    """Two layers, SIZE -> ``width`` -> SIZE, whose weights are identity matrices."""
    sizes = ((SIZE, width), (width, SIZE))
    layers = torch.nn.ModuleList(FakeLinear(a, b, torch.bfloat16, torch.device("cpu")) for a, b in sizes)
    for layer in layers:
        torch.nn.init.eye_(layer.weight)
    return layers


def ones() -> torch.Tensor:
    """An input of :func:`identity_layers` that wants a gradient."""
    return torch.ones(SIZE, SIZE, dtype=torch.bfloat16, requires_grad=True)


Body = Callable[[Callable[..., Any], torch.nn.ModuleList], Callable[..., torch.Tensor]]


def flat(autocast: Callable[..., Any], layers: torch.nn.ModuleList) -> Callable[..., torch.Tensor]:
    """Two layers in one region."""

    def forward(recipes: tuple[Any, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            return layers[1](layers[0](x))  # type: ignore[no-any-return]

    return forward


def builder(
    axes: Axes, body: Body = flat, *, steps: int = 1, raises: Raises | None = None
) -> Callable[[ProgramProvider], Program]:
    """What ``observe_cell`` takes: a builder of a two-layer program around ``body``."""

    def build(provider: ProgramProvider) -> Program:
        ctx = CaseContext(provider, axes, None, torch.device("cpu"), torch.bfloat16)
        model = torch.nn.Module()
        layers = torch.nn.ModuleList(
            provider.linear(SIZE, SIZE, bias=False, dtype=ctx.dtype, device=ctx.device) for _ in range(2)
        )
        model.add_module("layers", layers)
        return Program(
            model=model,
            forward=body(provider.autocast, layers),
            recipes=lambda: (provider.recipe(axes.recipe),),
            make_inputs=_make_inputs,
            expects=Expects(fp8_linears=(axes.recipe.label,) * 2, steps=steps, raises=raises),
        )

    return build


def _make_inputs(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    x = torch.randn(SIZE, SIZE, generator=generator, dtype=torch.float32).to(torch.bfloat16)
    return (x.requires_grad_(True),)
