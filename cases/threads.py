"""Another thread calls compiled code while a region is open. The autocast state is the process's, not the thread's.

Catches: a region that another thread doesn't see, so that its FP8 is high precision without a word; a region of another
thread that leaves its recipe in force, or takes the open region's along; a graph compiled twice because of who calls.

Documented, for Transformer Engine and the reference alike: an open region holds for every thread. A thread may open
regions of its own while another one waits; regions of two threads that overlap without nesting leave the later exit's
state in force, and no program here does that. Threads take turns by joining, so that the order of everything is
fixed; only the calls of ``at_once`` run side by side, and their results must not depend on how.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from cases.toy_linear import HISTORY_STEPS, STEPS, bare, linears_of, rows_of
from harness.probing import Probing
from harness.program import Case, CaseContext, Expects, Program, Step

AT_ONCE = 2  # threads
CALLS = 4  # of each


def in_thread(call: Callable[[], torch.Tensor]) -> torch.Tensor:
    """What ``call`` returns in a thread of its own, which has ended by then; its exception is raised here."""
    return together([call])[0]


def together(calls: list[Callable[[], torch.Tensor]]) -> list[torch.Tensor]:
    """What each call returns in a thread of its own; none starts before all threads are there, all have ended by then.

    Raises:
        BaseException: the first one that a call raised.
    """
    ready = threading.Barrier(len(calls))
    results: dict[int, torch.Tensor] = {}
    errors: list[BaseException] = []

    def work(index: int) -> None:
        try:
            ready.wait()
            results[index] = calls[index]()
        except BaseException as error:  # raised where somebody waits for it
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(calls))]


def _inside(ctx: CaseContext) -> Program:
    """The first call of each step, hence the compilation too, is another thread's; the second is the region's own."""

    def drive(step: Step) -> torch.Tensor:
        with ctx.provider.autocast(enabled=True, recipe=step.recipes[0]):
            other = in_thread(lambda: step.forward(step.recipes, *step.inputs))
            return other + step.forward(step.recipes, *step.inputs)

    return _program(ctx, drive, (ctx.axes.recipe.label,) * 4)


def _own_region(ctx: CaseContext) -> Program:
    """The other thread opens a region of its own while one is open here: two settings, two graphs, and this region's
    recipe is in force again afterwards."""

    def drive(step: Step) -> torch.Tensor:
        def other() -> torch.Tensor:
            with ctx.provider.autocast(enabled=True, recipe=step.recipes[1]):
                return step.forward(step.recipes, *step.inputs)

        with ctx.provider.autocast(enabled=True, recipe=step.recipes[0]):
            total = in_thread(other)
            total = total + step.forward(step.recipes, *step.inputs)
        step.unchanged("after the regions of two threads")
        return total

    outer, inner = ctx.axes.recipe.label, (ctx.inner or ctx.axes.recipe).label
    return _program(ctx, drive, (inner,) * 2 + (outer,) * 2, graphs=2)


def _at_once(ctx: CaseContext) -> Program:
    """One call here; the probes then call from several threads side by side."""

    def drive(step: Step) -> torch.Tensor:
        with ctx.provider.autocast(enabled=True, recipe=step.recipes[0]):
            return step.forward(step.recipes, *step.inputs)

    return _program(ctx, drive, (ctx.axes.recipe.label,) * 2, probes=side_by_side)


def _program(
    ctx: CaseContext,
    drive: Callable[[Step], torch.Tensor],
    labels: tuple[str, ...],
    *,
    graphs: int = 1,
    probes: Callable[[Probing], None] | None = None,
) -> Program:
    layers = linears_of(ctx, 2)
    outer, inner = ctx.axes.recipe, ctx.inner or ctx.axes.recipe

    forward = bare(layers)

    steps = HISTORY_STEPS if outer.name == "delayed_scaling" else STEPS
    return Program(
        model=layers,
        forward=forward,
        recipes=lambda: (ctx.provider.recipe(outer), ctx.provider.recipe(inner)),
        make_inputs=rows_of(ctx),
        drive=drive,
        expects=Expects(labels, graphs=graphs, recompiles=graphs - 1, steps=steps, ordered_backward=False),
        own_threads=True,
        probes=probes,
    )


def side_by_side(probing: Probing) -> None:
    """Threads that call one compiled layer at the same time, in a region of this one: every result has eager's bits."""
    provider, (rows, columns, out) = probing.provider, probing.axes.shape
    with probing.part("after threads side by side"), torch.random.fork_rng():
        layer = provider.linear(columns, out, bias=True, dtype=probing.dtype, device=probing.device)
        x = torch.linspace(-2, 2, rows * columns, device=probing.device).reshape(rows, columns).to(probing.dtype)
        recipe = provider.recipe(probing.axes.recipe)
        called = layer if recipe_is_refused(probing) else torch.compile(layer, backend="eager")

        def calls() -> torch.Tensor:
            return torch.stack([called(x) for _ in range(CALLS)])

        with torch.no_grad(), provider.autocast(enabled=True, recipe=recipe):
            expected = layer(x)
            called(x)  # compiled before the race
            seen = torch.cat(together([torch.no_grad()(calls) for _ in range(AT_ONCE)]))
        wrong = sum(not torch.equal(result, expected) for result in seen)
        probing.fact(f"wrong results of {AT_ONCE * CALLS} calls side by side", 0, wrong)


def recipe_is_refused(probing: Probing) -> bool:
    """Delayed scaling compiles nowhere; its threads call the layer eagerly."""
    return probing.axes.recipe.name == "delayed_scaling"


_BUILD = {"inside": _inside, "own_region": _own_region, "at_once": _at_once}


def build(ctx: CaseContext) -> Program:
    """The program of ``ctx.axes.variant``."""
    return _BUILD[ctx.axes.variant](ctx)


CASE = Case(
    name="threads",
    build=build,
    catches="a region that other threads don't see, or that another thread's region changes",
    answers=("NVIDIA/TransformerEngine#2759",),
)
