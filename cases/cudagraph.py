"""CUDA graphs: forward and backward are captured once and replayed with other inputs and other weights.

Catches: a program that was never captured and nobody says so (pytorch/pytorch#193044, #176611, #176615); a scale that
is a constant of the capture (sgl-project/sglang#18002); a replay that reads a tensor which a reset has replaced;
weights that are quantised again though they were to be kept, or kept though they were to be quantised
(NVIDIA/TransformerEngine#2119).

``reduce_overhead``: torch.compile's own mode. ``captured``: a torch.cuda.CUDAGraph by hand, of eager and of compiled
code. ``kept_weight``: the same with weights that are kept over micro-batches, where a tensor decides which graph of one
capture does what.

The program itself is an ordinary one and judged as such: eager is right by the oracle, so that replays, in which
neither tap nor profiler sees a product, are held against eager bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from cases.toy_linear import Layers, linears_of, rows_of
from cases.ways import ways
from harness import torch_compat
from harness.data import draw
from harness.observe.replay import Replay, Tensors, distinct, skips_in_words, statements, watch
from harness.probing import Probing
from harness.program import Case, CaseContext, Expects, Program, features_of, lacks
from harness.providers.protocol import Provider
from harness.run.host import device_for
from harness.types import Axes

STEPS = 2
# Inductor runs a graph's first call uncaptured, captures at the second, replays from the third on; backward likewise.
WARM_UPS = 3
KEPT = "kept_weight"
FEATURES = ("cached_linear", "prepare_weight_cache", "capturing_autocast", "skip_weight_update")

Forward = Callable[..., torch.Tensor]
Call = Callable[[torch.Tensor, torch.Tensor], Tensors]  # input, output gradient -> output, gradients


@dataclass(frozen=True)
class Moment:
    """One replay. ``after`` is what happens first: "disabled" runs a region without FP8, "reset" resets the provider.
    ``keep``: the kept weight is used; elsewhere it is quantised anew."""

    name: str
    after: str = ""
    keep: bool = False


MOMENTS = (
    Moment("replay 1"),
    Moment("replay 2"),
    Moment("replay 3"),
    Moment("replay after a disabled region", after="disabled"),
    Moment("replay after a reset", after="reset"),
)
# The tensor that decides holds 1 when the provider is reset, and 0 is wanted after it: a graph that reads a dead one
# goes on keeping. Then 1 again, by way of the provider.
KEPT_MOMENTS = (
    Moment("first micro-batch"),
    Moment("second micro-batch", keep=True),
    Moment("first micro-batch after a disabled region", after="disabled"),
    Moment("second micro-batch of that step", keep=True),
    Moment("first micro-batch after a reset", after="reset"),
    Moment("second micro-batch after a reset", keep=True),
)


def capture(step: Call, x: torch.Tensor, grad: torch.Tensor) -> Call:
    """``step`` as one CUDA graph on tensors of its own, after a warm-up on a side stream; what replays it."""
    static_x, static_grad = x.detach().clone().requires_grad_(True), grad.clone()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            step(static_x, static_grad)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step(static_x, static_grad)

    def replay(x: torch.Tensor, grad: torch.Tensor) -> Tensors:
        with torch.no_grad():
            static_x.copy_(x)
            static_grad.copy_(grad)
        graph.replay()
        return results

    return replay


def change_weights(model: torch.nn.Module) -> None:
    """In place, as an optimizer does, and far: neither codes nor scales stay."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(-0.75)


@dataclass
class _Scene:
    """What the probes of one cell share. ``plain`` is the program's forward: recipes, input, whether FP8 is on."""

    ctx: CaseContext
    probing: Probing
    layers: Layers
    plain: Forward
    generator: torch.Generator

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A new input and output gradient."""
        rows, width, _ = self.ctx.axes.shape
        ctx = self.ctx
        x, grad = (draw(ctx.axes.data, (rows, width), self.generator, ctx.dtype, ctx.device) for _ in range(2))
        return x.requires_grad_(True), grad

    def step_of(self, run: Forward, enabled: bool = True) -> Call:
        """Forward and backward of ``run``."""

        def step(x: torch.Tensor, grad: torch.Tensor) -> Tensors:
            y = run((self.ctx.provider.recipe(self.ctx.axes.recipe),), x, enabled)
            return [y, *torch.autograd.grad(y, [x, *self.layers.parameters()], grad)]

        return step

    def eager(self, weights: Sequence[torch.Tensor], x: torch.Tensor, grad: torch.Tensor) -> Tensors:
        """What eager code gives with these weights; the layers' own are put back."""
        own = copies(self.layers)
        load(self.layers, weights)
        try:
            return self.step_of(self.plain)(x, grad)
        finally:
            load(self.layers, own)

    def replays(self, name: str, call: Call, disabled: Call, moments: Sequence[Moment], graphs: int) -> None:
        """Each moment's replay, with new data and weights, against eager code on the same."""
        seen: list[Replay] = []
        weights = copies(self.layers)
        for moment in moments:
            x, grad = self.batch()
            self._before(f"{name}, {moment.name}", moment, disabled, (x, grad))
            change_weights(self.layers)
            weights = weights if moment.keep else copies(self.layers)
            seen.append(watch(self.probing.provider, lambda x=x, grad=grad: call(x, grad)))  # type: ignore[misc]
            for said in statements(f"{name}, {moment.name}", seen[-1], graphs, self.eager(weights, x, grad)):
                self.probing.fact(said.name, said.expected, said.seen)
        self.probing.fact(f"{name}: different outputs", len(moments), distinct(seen))

    def _before(self, name: str, moment: Moment, disabled: Call, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        if moment.after == "disabled":
            with self.probing.provider.tap() as records:
                disabled(*batch)
            self.probing.fact(f"{name}: FP8 products in that region", 0, len(records))
        if moment.after == "reset":
            self.probing.provider.reset()
        self.keep_weights(moment.keep)

    def keep_weights(self, keep: bool) -> None:
        """Set the tensor that captured graphs of kept weights read; nothing to do for the others."""
        if self.ctx.axes.variant == KEPT:
            features_of(self.ctx.provider)["skip_weight_update"](keep, self.layers[0].weight.device)


def copies(model: torch.nn.Module) -> Tensors:
    """The parameters' values."""
    return [parameter.detach().clone() for parameter in model.parameters()]


def load(model: torch.nn.Module, values: Sequence[torch.Tensor]) -> None:
    """Put values into the parameters, in place: a captured graph reads them where they are."""
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.copy_(value)


def _reduce_overhead(scene: _Scene) -> None:
    compiled = torch.compile(scene.plain, mode="reduce-overhead", fullgraph=scene.ctx.axes.fullgraph)

    def stepping(enabled: bool) -> Call:
        step = scene.step_of(compiled, enabled)

        def call(x: torch.Tensor, grad: torch.Tensor) -> Tensors:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            return step(x, grad)

        return call

    with torch_compat.graph_skips() as skips:
        with scene.probing.part("after the captures"):
            for call in (stepping(True), stepping(False)):
                for _ in range(WARM_UPS):
                    call(*scene.batch())
        with scene.probing.part("after the replays"):
            scene.replays("reduce-overhead", stepping(True), stepping(False), MOMENTS, graphs=2)
        scene.probing.fact("captures that Inductor skipped", "none", skips_in_words(skips))


def _captured(scene: _Scene) -> None:
    kept = scene.ctx.axes.variant == KEPT
    disabled = scene.step_of(scene.plain, enabled=False)
    for name, run in ways(scene.ctx, _capturing(scene.ctx, scene.layers)):
        with scene.probing.part(f"after the capture of {name} code and its replays"):
            call = capture(scene.step_of(run), *scene.batch())
            scene.replays(f"captured {name} code", call, disabled, KEPT_MOMENTS if kept else MOMENTS, graphs=1)
            scene.keep_weights(False)


def _capturing(ctx: CaseContext, layers: Layers) -> Forward:
    """The forward that is captured: in the provider's region for that, if it has one."""
    features = features_of(ctx.provider)
    autocast = features.get("capturing_autocast", ctx.provider.autocast)
    if ctx.axes.variant != KEPT:
        return _forward(autocast, lambda layer, x: layer(x), layers)
    linear = features["cached_linear"]
    return _forward(autocast, lambda layer, x: linear(layer, x, True), layers)


def _forward(autocast: Callable[..., object], apply: Callable[..., torch.Tensor], layers: Layers) -> Forward:
    def forward(recipes: tuple[object, ...], x: torch.Tensor, enabled: bool = True) -> torch.Tensor:
        with autocast(enabled=enabled, recipe=recipes[0]):  # type: ignore[attr-defined]
            return apply(layers[1], torch.nn.functional.gelu(apply(layers[0], x)))

    return forward


def build(ctx: CaseContext) -> Program:
    """Two ToyLinears, an activation between them. Without bias, so that no sum is left for Inductor to reorder."""
    layers = linears_of(ctx, 2, bias=False)
    recipe, variant = ctx.axes.recipe, ctx.axes.variant
    if variant == KEPT and set(FEATURES) <= set(features_of(ctx.provider)):  # the oracle need not have them
        for layer in layers:
            features_of(ctx.provider)["prepare_weight_cache"](layer, ctx.provider.recipe(recipe))
    plain = _forward(ctx.provider.autocast, lambda layer, x: layer(x), layers)

    def probes(probing: Probing) -> None:
        scene = _Scene(ctx, probing, layers, plain, torch.Generator().manual_seed(ctx.axes.seed))
        (_reduce_overhead if variant == "reduce_overhead" else _captured)(scene)

    return Program(
        model=layers,
        forward=plain,
        recipes=lambda: (ctx.provider.recipe(recipe),),
        make_inputs=rows_of(ctx),
        probes=probes,
        expects=Expects(fp8_linears=(recipe.label,) * 2, steps=STEPS),
    )


def unavailable(provider: Provider, axes: Axes, arch: str) -> str:
    """Only a GPU captures and replays, and tracing shows neither."""
    if device_for(arch).type != "cuda":
        return f"CUDA graphs are captured and replayed on a GPU alone, and {arch} is none that this machine has"
    if axes.variant == "reduce_overhead" and axes.backend != "inductor":
        return "reduce-overhead is a mode of the backend inductor"
    return lacks(provider, *FEATURES) if axes.variant == KEPT else ""


CASE = Case(
    name="cudagraph",
    build=build,
    catches="a program that is never captured, scales and weights that are constants of the capture, dead tensors",
    answers=(
        "pytorch/pytorch#193044",
        "pytorch/pytorch#176611",
        "pytorch/pytorch#176615",
        "sgl-project/sglang#18002",
        "NVIDIA/TransformerEngine#2119",
    ),
    unavailable=unavailable,
)
