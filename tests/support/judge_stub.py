"""A small FP8 library in plain torch, for the judge's tests: honest by default, and broken on purpose by subclassing.

It shares nothing with ``harness.fp8`` nor with the oracle: casts are torch's own, E2M1 is a count of midpoints.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from cases.toy_linear import CASE
from harness.observe.run import Batches, build_program, parameters_of, run_steps
from harness.observe.types import Observations, RunSeen
from harness.program import CaseContext, Program
from harness.providers.protocol import Operand, ProgramProvider, TapRecord
from harness.types import PARTNERS, Axes, Evidence, Spec

FLOAT8 = {"e4m3": (torch.float8_e4m3fn, 448.0), "e5m2": (torch.float8_e5m2, 57344.0)}
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


@dataclass(frozen=True)
class Quantised:
    """A quantised operand: an :class:`Operand` and the float32 values that it stands for."""

    operand: Operand
    values: torch.Tensor


def blocks_of(recipe: Spec, role: str, shape: tuple[int, int]) -> tuple[int, int]:
    square = {"float8_block_scaling": 128, "nvfp4_block_scaling": 16}
    length = {"float8_block_scaling": 128, "nvfp4_block_scaling": 16, "mxfp8_block_scaling": 32}
    if recipe.name == "float8_rowwise_scaling":
        return (1, shape[1])
    if recipe.name in square and role == "weight":
        return (square[recipe.name], square[recipe.name])
    return (1, length[recipe.name]) if recipe.name in length else shape


def expand(scale: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    return scale.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)


def block_amax(x: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    rows, columns = x.shape
    return x.abs().reshape(rows // block[0], block[0], columns // block[1], block[1]).amax((1, 3))


def decode_e8(codes: torch.Tensor, fmt: str) -> torch.Tensor:
    return codes.view(FLOAT8[fmt][0]).float()


class StubProvider:
    """Implements recipe, autocast, linear and a tap. Methods named after what a fault overrides."""

    def __init__(self) -> None:
        self.regions: list[Spec | None] = []
        self.records: list[TapRecord] = []
        self.count = 0

    def recipe(self, spec: Spec) -> Spec:
        return replace(spec)

    @property
    def autocast(self) -> Any:
        return self._autocast

    @contextmanager
    def _autocast(self, *, enabled: bool = True, recipe: Spec | None = None) -> Iterator[None]:
        self.regions.append(recipe if enabled else None)
        try:
            yield
        finally:
            self.regions.pop()

    def linear(self, in_features: int, out_features: int, *, bias: bool, dtype: torch.dtype, device: Any) -> Any:
        self.count += 1
        return StubLinear(self, self.count - 1, in_features, out_features, bias, dtype)

    def recipe_for(self, layer: int) -> Spec | None:
        return self.regions[-1] if self.regions else None

    def format_of(self, recipe: Spec, role: str) -> str:
        hybrid = recipe.name in ("float8_current_scaling", "delayed_scaling")
        return "e5m2" if hybrid and role == "grad_output" else "e4m3"

    def encode_scale(self, amax: torch.Tensor, top: float) -> torch.Tensor:
        return torch.where(amax > 0, torch.full_like(amax, top) / amax, torch.ones_like(amax))

    def cast(self, x: torch.Tensor, fmt: str) -> torch.Tensor:
        dtype, top = FLOAT8[fmt]
        return x.clamp(-top, top).to(dtype).view(torch.uint8)

    def cast_e2m1(self, x: torch.Tensor) -> torch.Tensor:
        # Halfway points go to the even code: upwards where the code above is even.
        midpoints = ((0.25, False), (0.75, True), (1.25, False), (1.75, True), (2.5, False), (3.5, True), (5.0, False))
        counts = [(x.abs() >= m if upwards else x.abs() > m).to(torch.uint8) for m, upwards in midpoints]
        return torch.stack(counts).sum(0).to(torch.uint8) | (torch.signbit(x).to(torch.uint8) << 3)

    def quantise(self, source: torch.Tensor, recipe: Spec, role: str) -> Quantised:
        x = source.detach().float().contiguous()
        block = blocks_of(recipe, role, (x.shape[0], x.shape[1]))
        if recipe.name == "nvfp4_block_scaling":
            return self._nvfp4(source, x, role, block)
        fmt = self.format_of(recipe, role)
        amax = block_amax(x, block)
        if recipe.name == "mxfp8_block_scaling":
            scale = torch.exp2(-torch.ceil(torch.log2(amax / FLOAT8[fmt][1])).clamp(-127, 127))
        else:
            scale = self.encode_scale(amax, FLOAT8[fmt][1])
            if recipe.name == "float8_block_scaling":
                scale = torch.exp2(torch.floor(torch.log2(scale)))
        codes = self.cast(x * expand(scale, block), fmt)
        decode = torch.ones_like(scale) / scale
        return self.finish(Operand(role, fmt, block, source.detach().clone(), codes, decode))

    def _nvfp4(self, source: torch.Tensor, x: torch.Tensor, role: str, block: tuple[int, int]) -> Quantised:
        amax = block_amax(x, block)
        whole = self.encode_scale(amax.amax().reshape(1), 2688.0)
        scale = ((amax / torch.full_like(amax, 6.0)) * whole).clamp_max(448.0).to(torch.float8_e4m3fn).float()
        multiplier = torch.where(scale > 0, whole / scale, torch.zeros_like(scale))
        codes = self.cast_e2m1(x * expand(multiplier, block))
        codes = torch.where(expand(scale, block) > 0, codes, torch.zeros_like(codes))
        inverse = torch.ones_like(whole) / whole
        return self.finish(Operand(role, "e2m1", block, source.detach().clone(), codes, scale, inverse))

    def finish(self, operand: Operand) -> Quantised:
        return Quantised(operand, self.decode(operand))

    def decode(self, operand: Operand) -> torch.Tensor:
        if operand.format == "e2m1":
            values = E2M1[(operand.codes & 7).long()] * (1 - 2 * (operand.codes >> 3).float())
        else:
            values = decode_e8(operand.codes, operand.format)
        values = values * expand(operand.scale, operand.block)
        return values if operand.global_scale is None else values * operand.global_scale

    def multiply(self, a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return (a @ b.t()).to(dtype)

    def product(
        self, layer: StubLinear, name: str, recipe: Spec, a: tuple[torch.Tensor, str], b: tuple[torch.Tensor, str]
    ) -> torch.Tensor:
        qa, qb = self.quantise(a[0], recipe, a[1]), self.quantise(b[0], recipe, b[1])
        out = self.multiply(qa.values, qb.values, a[0].dtype)
        phase = "forward" if name == "fprop" else "backward"
        pointer = layer.weight.data_ptr()
        self.records.append(TapRecord(recipe.label, name, phase, qa.operand, qb.operand, out.clone(), pointer))
        return out

    def fprop(self, layer: StubLinear, recipe: Spec, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return self.product(layer, "fprop", recipe, (x, "input"), (w, "weight"))

    def dgrad(self, layer: StubLinear, recipe: Spec, g: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return self.product(layer, "dgrad", recipe, (g, "grad_output"), (w.t(), "weight"))

    def wgrad(self, layer: StubLinear, recipe: Spec, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.product(layer, "wgrad", recipe, (g.t(), "grad_output"), (x.t(), "input"))

    def add_bias(self, layer: int, y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return y + bias


class StubLinear(torch.nn.Module):
    def __init__(self, provider: StubProvider, index: int, k: int, n: int, bias: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.provider, self.index = provider, index
        self.weight = torch.nn.Parameter(torch.zeros(n, k, dtype=dtype))
        self.bias = torch.nn.Parameter(torch.zeros(n, dtype=dtype)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        recipe = self.provider.recipe_for(self.index)
        if recipe is None:
            return torch.nn.functional.linear(x, self.weight, self.bias)
        y = _Product.apply(x, self.weight, self, recipe)
        return y if self.bias is None else self.provider.add_bias(self.index, y, self.bias)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, layer: StubLinear, recipe: Spec) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        ctx.layer, ctx.recipe = layer, recipe
        return layer.provider.fprop(layer, recipe, x.detach(), w.detach())

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        x, w = ctx.saved_tensors
        provider = ctx.layer.provider
        dx = provider.dgrad(ctx.layer, ctx.recipe, g, w) if ctx.needs_input_grad[0] else None
        return dx, provider.wgrad(ctx.layer, ctx.recipe, g, x), None, None


def axes_for(recipe: str | Spec = "float8_current_scaling", **changes: Any) -> Axes:
    spec = recipe if isinstance(recipe, Spec) else Spec(recipe)
    return replace(
        Axes(case="toy_linear", provider=Spec("stub"), recipe=spec, arch="cpu", backend="aot_eager"), **changes
    )


BuildCase = Callable[[CaseContext], Program]


def builder(axes: Axes, case: BuildCase) -> Callable[[ProgramProvider], Program]:
    inner = Spec(PARTNERS[axes.recipe.name])

    def build(provider: ProgramProvider) -> Program:
        own = isinstance(provider, StubProvider)
        dtype = getattr(torch, axes.dtype) if own else torch.float64
        program = case(CaseContext(provider, axes, inner, torch.device("cpu"), dtype))
        if axes.recipe.name == "delayed_scaling":
            return program
        # One step is enough for what these tests break, and keeps their expectations readable.
        return dataclasses.replace(program, expects=dataclasses.replace(program.expects, steps=1))

    return build


def run_stub(provider: StubProvider, axes: Axes, case: BuildCase) -> tuple[RunSeen, Program, Batches]:
    program = build_program(builder(axes, case), provider, axes)
    batches = Batches(program, axes, kept=program.expects.steps)
    run = run_steps(program, batches, provider.records, program.forward, lambda phase: None, ("eager", "eager"))
    return run, program, batches


def observe(
    axes: Axes,
    eager: StubProvider | None = None,
    compiled: StubProvider | None = None,
    case: BuildCase = CASE.build,
) -> Observations:
    """Observations of a cell whose eager run is ``eager`` and whose compiled run, if any, is ``compiled``."""
    run, program, batches = run_stub(eager or StubProvider(), axes, case)
    parameters, drawn = parameters_of(program), batches.drawn()
    build = builder(axes, case)
    return Observations(
        evidence=Evidence.EMULATED,
        arch="cpu",
        expects=program.expects,
        rebuild=lambda provider: build_program(build, provider, axes),
        parameters=parameters,
        batches=drawn,
        eager=run,
        eager_again=run_stub(type(eager)() if eager else StubProvider(), axes, case)[0],
        compiled=run_stub(compiled, axes, case)[0] if compiled is not None else None,
    )
