"""Batches and steps: reproducible, independent of each other, results in their own storage."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from harness.observe.run import Batches, build_program, layers_of, parameters_of, run_step, run_steps
from harness.program import Program
from harness.types import Axes, Spec
from tests.support.fake_provider import FakeProvider, builder

AXES = Axes(case="fake", provider=Spec("fake"), recipe=Spec("r"))


@pytest.fixture
def program() -> Program:
    FakeProvider().reset()
    return build_program(builder(AXES, steps=3), FakeProvider(), AXES)


def test_same_seed_builds_the_same_parameters_and_another_seed_others(program: Program) -> None:
    again = build_program(builder(AXES), FakeProvider(), AXES)
    other = build_program(builder(AXES), FakeProvider(), Axes("fake", Spec("fake"), Spec("r"), seed=1))
    for name, value in parameters_of(program).items():
        assert torch.equal(value, parameters_of(again)[name])
        assert not torch.equal(value, parameters_of(other)[name])


def test_parameters_are_copies(program: Program) -> None:
    copies = parameters_of(program)
    for name, parameter in program.model.named_parameters():
        assert copies[name].data_ptr() != parameter.data_ptr()


def test_layers_are_named_by_their_weight(program: Program) -> None:
    pointers = {name: module.weight.data_ptr() for name, module in program.model.layers.named_children()}
    assert layers_of(program) == {pointers["0"]: "layers.0", pointers["1"]: "layers.1"}


def test_batches_do_not_depend_on_order(program: Program) -> None:
    forwards, backwards = Batches(program, AXES, kept=3), Batches(program, AXES)
    seen = {index: forwards.inputs(index)[0] for index in range(3)}
    for index in (2, 1, 0):
        assert torch.equal(backwards.inputs(index)[0], seen[index])
    assert not torch.equal(seen[0], seen[1])


def test_inputs_are_new_leaves_each_time(program: Program) -> None:
    batches = Batches(program, AXES, kept=1)
    first, second = batches.inputs(0)[0], batches.inputs(0)[0]
    assert first.is_leaf
    assert first.requires_grad
    assert first.data_ptr() != second.data_ptr()


def test_batches_keep_the_layout_that_they_were_drawn_with(program: Program) -> None:
    x = torch.arange(32.0).reshape(4, 8)
    program = replace(program, make_inputs=lambda generator: (x[:, 3:].t().requires_grad_(), x[:2], x[:2].clone()))
    batches = Batches(program, replace(AXES, dynamic=True), kept=1)
    for index, magnitude in enumerate((1.0, 8.0)):
        odd, view, whole = batches.inputs(index)
        assert (odd.stride(), odd.storage_offset(), odd.requires_grad) == ((1, 8), 3, True)
        assert torch.equal(odd.detach(), x[:, 3:].t() * magnitude)  # as many rows in each batch: strides would change
        assert (view.shape, view._is_view()) == ((2, 8), True)  # Dynamo guards on a view's base, rows and all
        assert (whole.shape, whole._is_view()) == ((2 + 2 * index, 8), False)


def test_only_kept_batches_are_remembered(program: Program) -> None:
    batches = Batches(program, AXES, kept=1)
    for index in (0, 1, 2):
        run_step(program, batches, index, program.forward)
    (kept,) = batches.drawn()
    assert torch.equal(kept.inputs[0], batches.inputs(0)[0])
    assert kept.grad_output.shape == (16, 16)


def test_seed_of_the_cell_decides_the_data(program: Program) -> None:
    other = Batches(program, Axes("fake", Spec("fake"), Spec("r"), seed=1))
    assert not torch.equal(other.inputs(0)[0], Batches(program, AXES).inputs(0)[0])


def test_input_and_gradient_of_one_batch_differ(program: Program) -> None:
    batches = Batches(program, AXES, kept=1)
    run_step(program, batches, 0, program.forward)
    (kept,) = batches.drawn()
    assert not torch.equal(kept.inputs[0], kept.grad_output)


def test_step_gives_output_and_every_gradient_as_copies(program: Program) -> None:
    batches = Batches(program, AXES)
    step = run_step(program, batches, 0, program.forward)
    assert set(step.grads) == {"input0", "layers.0.weight", "layers.1.weight"}
    for name, parameter in program.model.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.data_ptr() != step.grads[name].data_ptr()
    assert not step.output.requires_grad


def test_step_keeps_the_output_itself_where_it_lies(program: Program) -> None:
    given: list[torch.Tensor] = []

    def forward(*args: object) -> torch.Tensor:
        given.append(program.forward(*args))
        return given[0]

    step = run_step(program, Batches(program, AXES), 0, forward)
    assert step.returned is not None
    assert step.returned.data_ptr() == given[0].data_ptr() != step.output.data_ptr()
    assert not step.returned.requires_grad


def test_gradients_do_not_add_up_over_steps(program: Program) -> None:
    batches = Batches(program, AXES)
    first = run_step(program, batches, 0, program.forward)
    second = run_step(program, batches, 0, program.forward)
    assert torch.equal(first.grads["layers.0.weight"], second.grads["layers.0.weight"])


def test_output_without_gradient_gives_no_gradients(program: Program) -> None:
    step = run_step(program, Batches(program, AXES), 0, lambda *args: program.forward(*args).detach())
    assert step.grads == {}


def test_recipes_are_new_in_each_step(program: Program) -> None:
    seen: list[object] = []

    def forward(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        seen.append(recipes[0])
        return program.forward(recipes, x)

    batches = Batches(program, AXES)
    run_step(program, batches, 0, forward)
    run_step(program, batches, 1, forward)
    assert seen[0] == seen[1]
    assert seen[0] is not seen[1]


def test_phases_and_owners_of_records(program: Program) -> None:
    phases: list[str] = []
    with FakeProvider().tap() as records:
        batches = Batches(program, AXES, kept=3)
        run = run_steps(program, batches, records, program.forward, phases.append, ("compile", "run"))
    assert phases == ["compile", "backward", "run", "backward", "run", "backward"]
    assert len(run.steps) == 3
    assert run.steps_of_records == (0,) * 6 + (1,) * 6 + (2,) * 6
    assert {run.layers[record.weight_ptr] for record in run.records} == {"layers.0", "layers.1"}
