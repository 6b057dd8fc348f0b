"""Running a program: batches, one step of forward and backward, results that own their storage."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from harness import torch_compat
from harness.data import draw, fill_parameters
from harness.layout import copied
from harness.observe.derived import attributed, derived_weights, stand_in
from harness.observe.draws import seed_draws
from harness.observe.types import Batch, RunSeen, StepTensors
from harness.program import Program, Step
from harness.providers.protocol import ProgramProvider, TapRecord
from harness.types import Axes

Build = Callable[[ProgramProvider], Program]
# Called as program.forward is, (recipes, *inputs): the forward itself, or the compiled one through the census.
Forward = Callable[..., torch.Tensor]
EnterPhase = Callable[[str], None]


class MakeStep(Protocol):
    """Makes the step that a program's ``drive`` is given: on the oracle a plain one, on a provider one that has it."""

    def __call__(
        self, index: int, forward: Forward, recipes: tuple[object, ...], inputs: tuple[torch.Tensor, ...], /
    ) -> Step: ...


# Batch i is drawn and multiplied by MAGNITUDES[i % 3]: a scale or an amax that was kept from an earlier call is then
# far off, instead of nearly right. Powers of two, so that every dtype holds the products exactly.
MAGNITUDES = (1.0, 8.0, 0.125)


def build_program(build: Build, provider: ProgramProvider, axes: Axes) -> Program:
    """The cell's program on ``provider``, parameters filled from the cell's seed, torch's own generators seeded.

    Their state afterwards is that of no seed, least of all of one that a library would choose: seeding them anew shows.
    """
    torch.manual_seed(axes.seed)
    program = build(provider)
    fill_parameters(program.model, axes.seed, dtype=getattr(torch, axes.dtype))
    torch.manual_seed(axes.seed)
    torch.rand(1)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.rand(1, device="cuda")
    return program


def parameters_of(program: Program) -> Mapping[str, torch.Tensor]:
    """Copies of the parameters by name."""
    return {name: parameter.detach().clone() for name, parameter in program.model.named_parameters()}


def buffers_of(program: Program) -> Mapping[str, torch.Tensor]:
    """Copies of the floating-point buffers by name."""
    named = program.model.named_buffers()
    return {name: buffer.detach().clone() for name, buffer in named if buffer.is_floating_point()}


def layers_of(program: Program) -> Mapping[int, str]:
    """``data_ptr()`` of each module's own ``weight``, or what stands for it -> the module's name."""
    derived = list(derived_weights(program))
    known = {
        module.weight.data_ptr(): name
        for name, module in program.model.named_modules()
        if name not in derived and isinstance(getattr(module, "weight", None), torch.Tensor)
    }
    return {**known, **{stand_in(place): name for place, name in enumerate(derived)}}


@dataclass
class Batches:
    """The cell's batches by index, drawn on demand; batch ``i`` is the same whoever asks, in whatever order.

    The first ``kept`` are remembered for the judge; later ones, those of the steady calls, are drawn and forgotten.
    """

    program: Program
    axes: Axes
    kept: int = 0
    draws: bool = False  # the program draws random numbers, each step from a seed of its own
    _inputs: dict[int, tuple[torch.Tensor, ...]] = field(default_factory=dict)
    _grads: dict[int, torch.Tensor] = field(default_factory=dict)

    def inputs(self, index: int) -> tuple[torch.Tensor, ...]:
        """New leaf tensors with the values of batch ``index``: gradients of one run never meet those of another."""
        if index in self._inputs:
            return tuple(copied(t).requires_grad_(t.requires_grad) for t in self._inputs[index])
        drawn = self._draw(index)
        if index >= self.kept:
            return drawn
        self._inputs[index] = drawn
        return self.inputs(index)

    def _draw(self, index: int) -> tuple[torch.Tensor, ...]:
        generator = self._generator("input", index)
        if self.program.inputs_at is not None:
            drawn = self.program.inputs_at(generator, index)
        else:
            drawn = self.program.make_inputs(generator)
        return drawn if self.program.exact_inputs else tuple(self._varied(index, tensor) for tensor in drawn)

    def _varied(self, index: int, tensor: torch.Tensor) -> torch.Tensor:
        """Floating-point inputs in the batch's magnitude; under ``dynamic`` every other batch has twice the rows.

        Not those of a square input: Dynamo gives equal sizes one symbol, so that one of them can't vary alone. Nor
        those of a view or of one that is not contiguous: each batch keeps the layout it was drawn in.
        """
        if not tensor.is_floating_point():
            return tensor
        values = copied(tensor, MAGNITUDES[index % len(MAGNITUDES)])
        varies = self.axes.dynamic and index % 2 and values.dim() > 1 and values.shape[0] not in values.shape[1:]
        if varies and values.is_contiguous() and not torch_compat.is_view(values):
            values = torch.cat([values, values.flip(0)])
        return values.requires_grad_(tensor.requires_grad)

    def grad_output(self, index: int, output: torch.Tensor) -> torch.Tensor:
        """What backward of batch ``index`` starts from, shaped like ``output``."""
        if index in self._grads:
            return self._grads[index]
        generator = self._generator("grad_output", index)
        grad = draw(self.axes.data, output.shape, generator, output.dtype, output.device)
        if index < self.kept:
            self._grads[index] = grad
        return grad

    def drawn(self) -> tuple[Batch, ...]:
        """The kept batches that were run."""
        return tuple(Batch(self._inputs[i], self._grads[i]) for i in range(self.kept) if i in self._grads)

    def _generator(self, role: str, index: int) -> torch.Generator:
        generator = torch.Generator(device="cpu")
        # The CPU generator looks at the low 32 bits of a seed only: everything must be mixed into them.
        generator.manual_seed(zlib.crc32(f"{self.axes.seed} {role} {index}".encode()))
        return generator


def run_step(
    program: Program,
    batches: Batches,
    index: int,
    forward: Forward,
    enter_phase: EnterPhase = lambda name: None,
    make_step: MakeStep = Step,
) -> StepTensors:
    """Forward and backward of batch ``index`` through ``forward``, with new tensors and equal-but-new recipe objects.

    Returns:
        Copies: output, gradient of the first input ("input0"; further ones "input1"...) and of each parameter that got
        one, by name; the weights after the program's update, if it has one.

    Raises:
        Exception: whatever the program raises; ``enter_phase("backward")`` was called once forward is through.
    """
    program.model.zero_grad(set_to_none=True)
    inputs = batches.inputs(index)
    step = make_step(index, forward, program.recipes(), inputs)
    if batches.draws:
        seed_draws(batches.axes.seed, index)
    output = program.run(step)
    grad_output = batches.grad_output(index, output)
    enter_phase("backward")
    if output.requires_grad:
        _backward(program, step, output, grad_output)
    if output.device.type == "cuda":
        torch.cuda.synchronize(output.device)  # an asynchronous error belongs to this step
    seen = StepTensors(output.detach().clone(), _gradients(program, inputs), returned=output.detach())
    if program.update is None:
        return seen
    program.update(program.model)
    return replace(seen, weights=parameters_of(program))


def _backward(program: Program, step: Step, output: torch.Tensor, grad_output: torch.Tensor) -> None:
    if program.around_backward is None:
        torch.autograd.backward(output, grad_output)
        return
    left = program.passes

    def one_pass() -> None:
        nonlocal left
        left -= 1
        torch.autograd.backward(output, grad_output, retain_graph=left > 0)

    program.around_backward(step, one_pass)


def run_steps(
    program: Program,
    batches: Batches,
    records: Sequence[TapRecord],
    forward: Forward,
    enter_phase: EnterPhase,
    phases: tuple[str, str],
    make_step: MakeStep = Step,
) -> RunSeen:
    """:func:`run_step` for each step that the case asks for, under a tap whose live list is ``records``.

    Args:
        phases: of the first forward, and of the forwards after it.
    """
    steps: list[StepTensors] = []
    owners: list[int] = []
    for index in range(program.expects.steps):
        enter_phase(phases[min(index, 1)])
        steps.append(run_step(program, batches, index, forward, enter_phase, make_step))
        owners += [index] * (len(records) - len(owners))
    told = attributed(records, owners, derived_weights(program))
    return RunSeen(tuple(steps), told, layers_of(program), tuple(owners))


def _gradients(program: Program, inputs: Sequence[torch.Tensor]) -> Mapping[str, torch.Tensor]:
    named = [(f"input{i}", tensor) for i, tensor in enumerate(inputs)] + list(program.model.named_parameters())
    return {name: tensor.grad.detach().clone() for name, tensor in named if tensor.grad is not None}
