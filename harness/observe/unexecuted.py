"""Cells in which the named recipe does not execute: negative (it must be refused) and traced (graphs only)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from harness import torch_compat
from harness.observe.census import CensusObserver, reset_compiler
from harness.observe.probe import probe
from harness.observe.recorder import Recorder
from harness.observe.run import Batches, MakeStep, run_step
from harness.observe.subject import REFUSAL_CALLS, Subject, as_arch
from harness.observe.types import ErrorSeen, Observations, ProductSeen, StepTensors, TracedStep
from harness.program import Program, Step
from harness.providers.protocol import Provider, product_of, tells_products
from harness.run.host import device_for, host_arch
from harness.types import MINIMUM_TRACED, RECIPES, Spec

# Rows, columns and depth of the little layer that runs after a refusal: a multiple of every recipe's block.
_SIZE = 128
_NEGATIVE_COMPILED_CALLS = 2  # per fullgraph mode: the second meets whatever the first one cached
NOTHING_RAISED = "NothingRaised"


def observe_negative(subject: Subject, recorder: Recorder) -> Observations:
    """Observe that an unsupported recipe is refused on entry, eagerly and compiled, and that what follows works.

    Each attempt gives one ErrorSeen of phase ``enter``; one that raised nothing has the type ``NothingRaised``.
    """
    obs = Observations(subject.evidence, subject.arch)
    provider = subject.provider
    untouched = recorder.snapshot()
    with as_arch(provider, subject.arch):
        program: Program | None = None
        with recorder.part("build", "after build", stateless=True):
            program = subject.rebuild(provider)
        if program is None:
            return obs
        _attempt(recorder, _entering(provider), program, "eagerly")
        attempts = _compiled_attempts(subject, recorder, program)
        _run_region(subject, recorder, None, subject.device)
        obs = replace(obs, facts=probe(subject, recorder, program))
    recorder.compare(untouched, "after pretending to be another architecture", rng=False)
    _run_supported(subject, recorder)
    return replace(obs, expects=program.expects, compile_attempts=attempts)


def observe_traced(subject: Subject, recorder: Recorder) -> Observations:
    """Observe the graphs of a cell whose architecture is elsewhere: CPU fake tensors, no kernel runs.

    Never with fake tensors on ``cuda``: on a CPU build of torch they abort the process.
    """
    obs = Observations(subject.evidence, subject.arch, rebuild=subject.rebuild)
    seen: list[ProductSeen] = []
    fake = torch_compat.fake_tensor_mode(functools.partial(_note_product, subject.provider, seen))
    traced: list[TracedStep] = []
    backend = subject.axes.backend
    if backend == "inductor":  # it would compile kernels for this machine
        backend = "aot_eager"
        recorder.notes.append("inductor is traced through aot_eager: the graphs before code generation")
    with as_arch(subject.provider, subject.arch):
        program: Program | None = None
        with recorder.part("build", "after build", stateless=True), fake:
            program = subject.rebuild(subject.provider)
        if program is None:
            return obs
        batches = Batches(program, subject.axes)
        raises = subject.raises(program)
        # The steps that the numerics would need, and one more call than the first: the second meets what it cached.
        steps = max(MINIMUM_TRACED, program.expects.steps)
        calls, phase = (steps, "trace") if raises is None else (REFUSAL_CALLS, raises.phase)
        with CensusObserver(subject.provider.fp8_ops) as observer, recorder.under(program.settings):
            compiled = subject.compile(program, observer, backend)
            for index in range(calls):
                # Snapshots hold real tensors and are taken outside the fake mode.
                with recorder.part(phase, f"after traced call {index + 1}") as part, fake:
                    forward = functools.partial(observer.call, compiled)
                    # A refusal is the first step's, as in a cell that executes: later ones may have another setting.
                    step = index if raises is None else 0
                    seen.clear()
                    result = run_step(program, batches, step, forward, part.enter_phase, _traced_step(subject))
                    traced.append(_as_traced(result, seen if tells_products(subject.provider) else None))
        facts = probe(subject, recorder, program)
    return replace(
        obs,
        facts=facts,
        expects=program.expects,
        census=observer.census(),
        traced=tuple(traced),
        compile_attempts=0 if raises is None else calls,
    )


def _note_product(provider: Provider, seen: list[ProductSeen], op: str, args: tuple[Any, ...]) -> None:
    """Append to ``seen`` the operator that runs under fake tensors, where it is a product."""
    told = product_of(provider, op, args)
    if told is not None:
        product, recipe = told
        phase = "backward" if product != "fprop" else "recompute" if torch_compat.in_backward() else "forward"
        seen.append(ProductSeen(recipe, product, phase))


def _as_traced(result: StepTensors, products: list[ProductSeen] | None) -> TracedStep:
    shapes = {name: tuple(tensor.shape) for name, tensor in {"output": result.output, **result.grads}.items()}
    return TracedStep(shapes, None if products is None else tuple(products))


def _traced_step(subject: Subject) -> MakeStep:
    """State is compared around each call, outside the fake mode, so a step compares none of its own."""

    def reset() -> None:
        with torch_compat.real_tensors():  # those of the provider's state are
            subject.provider.reset()

    return functools.partial(Step, compiled=True, provider=subject.provider, reset=reset)


def _entering(provider: Provider) -> Callable[..., torch.Tensor]:
    """A program that opens the regions of its recipes inside each other and computes nothing in FP8."""
    autocast = provider.autocast

    def enter(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        if not recipes:
            return x + 1
        with autocast(enabled=True, recipe=recipes[0]):
            x = enter(recipes[1:], x)
        return x

    return enter


def _attempt(recorder: Recorder, enter: Callable[..., torch.Tensor], program: Program, how: str) -> None:
    recipes = program.recipes()  # made outside: building one need not be traceable
    with recorder.part("enter", f"after entering {how}") as part:
        enter(recipes, torch.ones(_SIZE))
    if not part.failed:
        message = f"the unsupported recipe was entered {how} without an exception"
        recorder.errors.append(ErrorSeen("enter", NOTHING_RAISED, message, ((NOTHING_RAISED, message),)))


def _compiled_attempts(subject: Subject, recorder: Recorder, program: Program) -> int:
    enter = _entering(subject.provider)
    backend = "eager" if subject.axes.backend == "eager" else "aot_eager"  # nothing is there to generate code for
    attempts = 0
    for fullgraph in (True, False):
        reset_compiler()
        compiled = torch.compile(enter, backend=backend, fullgraph=fullgraph)
        for _ in range(_NEGATIVE_COMPILED_CALLS):
            _attempt(recorder, compiled, program, f"under torch.compile(fullgraph={fullgraph})")
            attempts += 1
    return attempts


def _run_supported(subject: Subject, recorder: Recorder) -> None:
    """A region of a recipe that this machine does run, after the refusals; noted when there is none."""
    here = host_arch()
    supported = (Spec(name) for name in RECIPES if subject.provider.supports(Spec(name), here).level != "unsupported")
    spec = next(supported, None)
    if spec is None:
        recorder.notes.append(f"no recipe is supported on {here}: no region was run after the refusals")
        return
    _run_region(subject, recorder, spec, device_for(here))


def _run_region(subject: Subject, recorder: Recorder, spec: Spec | None, device: torch.device) -> None:
    """Forward and backward of one layer in a region of ``spec``, or in a disabled one for None.

    FP8 products in a disabled region, or none in an enabled one, are recorded as an error of phase ``eager``.
    """
    provider, dtype = subject.provider, getattr(torch, subject.axes.dtype)
    name = "disabled" if spec is None else spec.label
    with recorder.part("build", "after build", stateless=True) as part:  # parameters are drawn at random
        layer = provider.linear(_SIZE, _SIZE, bias=True, dtype=dtype, device=device)
    if part.failed:
        return
    x = torch.ones(_SIZE, _SIZE, dtype=dtype, device=device, requires_grad=True)
    with recorder.part("eager", f"after the {name} region that follows"), provider.tap() as records:
        region = provider.autocast(enabled=False) if spec is None else provider.autocast(recipe=provider.recipe(spec))
        with region:
            y = layer(x)
        torch.autograd.backward(y, torch.ones_like(y))
        if bool(records) != (spec is not None):
            raise RuntimeError(f"{len(records)} FP8 products ran in the {name} region")
