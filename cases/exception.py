"""Exceptions inside regions, eagerly and compiled: what reaches the caller, what state they leave, and whether the next
call is right.

Catches: a region whose exit an exception skips; an inner region that stays in force after its exception was caught in
the outer one; a layer or region that falls back to high precision for good once something failed; state that a backward
pass sets up and puts back at its end only, which a failed one never reaches; an exit that knows of ``Exception`` alone,
where Ctrl-C (KeyboardInterrupt) or a generator that is closed (GeneratorExit) ends the region.

Variants: ``python`` (a ``raise`` in the region: under fullgraph Dynamo's Unsupported, else the user's own exception and
an eager frame), ``op`` (an index out of bounds, found at run time by the operator), ``nested`` (such an operator in an
inner region, the exception leaves both), ``swallowed`` (the caller catches it while the outer region is open around the
compiled function, and calls again), ``backward`` (the operator runs in the backward pass), ``interrupted`` (an operator
raises what is no ``Exception``).
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from cases.interrupting import pass_unless, stopped
from cases.toy_linear import STEPS, Layers, linears_of, rows_of
from harness.observe.state import diff, provider_state
from harness.probing import documented
from harness.program import Case, CaseContext, Expects, Program, Step, StepExpects
from harness.providers.protocol import Provider
from harness.run.host import host_arch
from harness.types import Axes

Forward = Callable[..., torch.Tensor]

ROWS = 4  # of the table; the index beyond them is found by the operator that reads it
GOOD, BAD = 1, 9
OUT_OF_BOUNDS = r"out of (bounds|range)"


class RaisedByUser(Exception):
    """What the variant ``python`` raises."""


@dataclass(frozen=True)
class Table:
    """Zeros and the positions to read, on the CPU wherever the program runs: there a bad index is an exception, on a
    GPU it would be a failed assert that costs the process its context."""

    values: torch.Tensor

    def read(self, index: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """The rows at ``index`` (one element), shaped and placed so that they can be added to ``like``."""
        return self.values[index].to(device=like.device, dtype=like.dtype)


class _ReadInBackward(torch.autograd.Function):
    """Identity; its backward reads the table."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(values, index)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        values, index = ctx.saved_tensors
        (grad,) = grads
        # What doesn't depend on the gradient, or could be folded so that it doesn't, is moved into the forward graph.
        zeros = values + grad.flatten()[0].isnan().to(values)
        return grad + Table(zeros).read(index, grad), None, None


def _python(ctx: CaseContext, layers: Layers, table: Table) -> Forward:
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, object], x: torch.Tensor, index: torch.Tensor, fail: bool) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[0](x)
            if fail:
                raise RaisedByUser("raised inside the region")
            return layers[1](x)  # type: ignore[no-any-return]

    return forward


def _op(ctx: CaseContext, layers: Layers, table: Table) -> Forward:
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, object], x: torch.Tensor, index: torch.Tensor, fail: bool) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[0](x)
            return layers[1](x + table.read(index, x))  # type: ignore[no-any-return]

    return forward


def _nested(ctx: CaseContext, layers: Layers, table: Table) -> Forward:
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, object], x: torch.Tensor, index: torch.Tensor, fail: bool) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[0](x)
            with autocast(enabled=True, recipe=recipes[1]):
                x = layers[1](x + table.read(index, x))
            return layers[2](x)  # type: ignore[no-any-return]

    return forward


def _swallowed(ctx: CaseContext, layers: Layers, table: Table) -> Forward:
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, object], x: torch.Tensor, index: torch.Tensor, fail: bool) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[1]):
            x = layers[0](x)
            x = layers[1](x + table.read(index, x))
        return layers[2](x)  # type: ignore[no-any-return]  # in the region that the caller has open

    return forward


def _backward(ctx: CaseContext, layers: Layers, table: Table) -> Forward:
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, object], x: torch.Tensor, index: torch.Tensor, fail: bool) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[0](x)
            x = _ReadInBackward.apply(x, table.values, index)  # type: ignore[no-untyped-call]
            return layers[1](x)  # type: ignore[no-any-return]

    return forward


def _interrupted(ctx: CaseContext, layers: Layers, table: Table) -> Forward:
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[object, object], x: torch.Tensor, index: torch.Tensor, fail: bool) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[0](x)
            with autocast(enabled=True, recipe=recipes[1]):
                x = layers[1](pass_unless(x, index == BAD))
            return layers[2](x)  # type: ignore[no-any-return]

    return forward


# Per variant: the program, whose recipe each of its layers has (o, i), and how many of them run before the exception.
PROGRAMS: dict[str, tuple[Callable[[CaseContext, Layers, Table], Forward], str, int]] = {
    "python": (_python, "oo", 1),
    "op": (_op, "oo", 1),
    "nested": (_nested, "oio", 1),
    "swallowed": (_swallowed, "iio", 1),
    "backward": (_backward, "oo", 2),
    "interrupted": (_interrupted, "oio", 1),
}


def build(ctx: CaseContext) -> Program:
    """The program of ``ctx.axes.variant``: a call that fails, then the one that counts."""
    make_forward, owners, _ = PROGRAMS[ctx.axes.variant]
    layers, table = linears_of(ctx, len(owners)), Table(torch.zeros(ROWS))
    outer, inner = ctx.axes.recipe, ctx.inner or ctx.axes.recipe
    index = {at: torch.tensor([at]) for at in (GOOD, BAD)}
    drive_of = {
        "python": _drive_python,
        "swallowed": _drive_swallowed,
        "backward": _drive_backward,
        "interrupted": _drive_interrupted,
    }

    def drive(step: Step) -> torch.Tensor:
        return drive_of.get(ctx.axes.variant, _drive_op)(_Calls(step, ctx, index, layers))

    return Program(
        model=layers,
        forward=make_forward(ctx, layers, table),
        recipes=lambda: (ctx.provider.recipe(outer), ctx.provider.recipe(inner)),
        make_inputs=rows_of(ctx),
        drive=drive,
        expects=_expects(ctx, {"o": outer.label, "i": inner.label}),
    )


@dataclass(frozen=True)
class _Calls:
    """One step's calls: the failing one and the good one."""

    step: Step
    ctx: CaseContext
    index: dict[int, torch.Tensor]
    layers: Layers

    def good(self) -> torch.Tensor:
        return self.step.forward(self.step.recipes, *self.step.inputs, self.index[GOOD], False)

    def bad(self, *, fail: bool = False) -> torch.Tensor:
        return self.step.forward(self.step.recipes, *self.step.inputs, self.index[GOOD if fail else BAD], fail)

    @property
    def compiled(self) -> bool:
        """The oracle follows the compiled run step by step, and is never compiled itself."""
        return self.step.compiled and self.step.provider is not None

    @contextmanager
    def out_of_bounds(self, where: str) -> Iterator[None]:
        """The body's operator must raise. Inductor's own kernels check bounds with an error of their own; graph modules
        print the line that raised to stderr, which is of no use here."""
        error = "RuntimeError" if self.compiled and self.ctx.axes.backend == "inductor" else "IndexError"
        with contextlib.redirect_stderr(io.StringIO()), documented(error, OUT_OF_BOUNDS, f"an index in {where}"):
            yield


def _drive_op(calls: _Calls) -> torch.Tensor:
    with calls.out_of_bounds("the region"):
        calls.bad()
    calls.step.unchanged("after an operator raised in the region")
    return calls.good()


def _drive_interrupted(calls: _Calls) -> torch.Tensor:
    with stopped("the inner region"):
        calls.bad()
    calls.step.unchanged("after an interrupt in the region")
    return calls.good()


def _drive_python(calls: _Calls) -> torch.Tensor:
    step = calls.step
    # Dynamo can't compile a raise that nothing catches: under fullgraph it is an error while tracing, and nothing runs.
    refused = step.compiled and calls.ctx.axes.fullgraph
    error, text = ("Unsupported", "Observed exception") if refused else ("RaisedByUser", "raised inside the region")
    if step.index in RAISES and (calls.compiled or not refused):
        with documented(error, text, "a raise in the region"):
            calls.bad(fail=True)
        step.unchanged("after a raise in the region")
    return calls.good()


def _drive_swallowed(calls: _Calls) -> torch.Tensor:
    provider = calls.step.provider
    with calls.ctx.provider.autocast(enabled=True, recipe=calls.step.recipes[0]):
        before = _state(provider)
        with calls.out_of_bounds("the inner region"):
            calls.bad()
        changed = diff(before, _state(provider), "")
        if changed:
            named = ", ".join(f"{item.key} = {item.after}, was {item.before}" for item in changed)
            raise RuntimeError(f"the exception left the open region with another state: {named}")
        return calls.good()


def _drive_backward(calls: _Calls) -> torch.Tensor:
    if torch.is_grad_enabled():  # the oracle repeats forwards without gradients, to take its results apart
        x = calls.step.inputs[0].detach().requires_grad_(True)
        y = calls.step.forward(calls.step.recipes, x, calls.index[BAD], False)
        with calls.out_of_bounds("backward"):
            # Not .backward(): what the failed pass got done must not stay in the parameters' gradients.
            torch.autograd.grad(y, [x, *calls.layers.parameters()], torch.ones_like(y))
        calls.step.unchanged("after an operator raised in backward")
    return calls.good()


def _state(provider: Provider | None) -> Mapping[str, Any]:
    """The provider's state; the oracle has none to look at."""
    return {} if provider is None else provider_state(provider)


# Steps of the variant ``python`` in which the raise comes: each costs an attempt to compile, which steady calls must
# not make. Not the first, so that there is a graph for Dynamo to give up.
RAISES = (1, 2)
LATER = 11  # the profiled step and ten steady ones


def _expects(ctx: CaseContext, labels: dict[str, str]) -> Expects:
    _, owners, before = PROGRAMS[ctx.axes.variant]
    ran = tuple(labels[owner] for owner in owners)
    good, failing = StepExpects(ran), StepExpects(ran[:before] + ran, dgrad=ran[::-1], wgrad=ran[::-1])
    if ctx.axes.variant == "backward":
        last = ran[-1:]  # backward began with the last layer, whose gradient it got
        failing = StepExpects(ran + ran, dgrad=last + ran[::-1], wgrad=last + ran[::-1])
    if ctx.axes.variant != "python":
        return Expects(schedule=(failing,), steps=STEPS)
    schedule, steps = (good,) + (failing,) * len(RAISES) + (good,) * LATER, 1 + len(RAISES)
    if ctx.axes.fullgraph:
        # Each raise is a guard that fails and an attempt to compile, which ends as an unsupported construct.
        attempts = len(RAISES)
        return Expects(
            schedule=schedule, compiled_schedule=(good,), steps=steps, recompiles=attempts, graph_breaks=attempts
        )
    # Dynamo answers the first raise by giving the frame up for good, graphs that it had included (torch 2.11 to 2.13):
    # an eager frame (two where the region is a generator) that calls layers compiled each for itself. They share
    # guards on everything but their shapes: one frame, a graph for each shape.
    _, in_features, out_features = ctx.axes.shape
    shapes = 1 if in_features == out_features else 2
    return Expects(
        schedule=schedule,
        steps=steps,
        graphs=1 + shapes,
        recompiles=shapes,  # the frame's attempt, and the second shape's
        graph_breaks=1,
        eager_frames=2,
    )


def unavailable(provider: Provider, axes: Axes, arch: str) -> str:
    """Where nothing executes only a raise that Dynamo refuses can be seen."""
    del provider
    elsewhere = arch not in ("cpu", host_arch())
    if elsewhere and not (axes.variant == "python" and axes.fullgraph):
        return f"nothing executes for {arch} on this machine, so nothing raises at run time"
    return ""


CASE = Case(
    name="exception",
    build=build,
    catches="state or a fallback that an exception in a region, or in its backward, leaves behind",
    answers=("pytorch/pytorch#195488", "NVIDIA/TransformerEngine#3213", "pytorch/pytorch#138215"),
    unavailable=unavailable,
)
