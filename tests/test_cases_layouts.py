"""cases.layouts, and the faults that read storage in other ways than strides say."""

from __future__ import annotations

import pytest
import torch

from cases.layouts import asks, build, inputs_of, store_transposed
from harness.faults.storage_order import without_offset, without_strides
from harness.fp8 import ops
from harness.observe.run import Batches
from harness.program import CaseContext
from harness.providers.reference import ReferenceProvider
from harness.types import Axes, Spec

AXES = Axes("layouts", Spec("reference"), Spec("float8_current_scaling"))
TOLD = asks(ReferenceProvider(), AXES, "cpu")
CONTEXT = CaseContext(ReferenceProvider(), AXES, None, torch.device("cpu"), torch.bfloat16, told=TOLD)
X = torch.arange(24.0).reshape(4, 6)


def test_inputs_have_their_layouts_as_drawn_and_as_run() -> None:
    drawn = inputs_of(CONTEXT, torch.Generator().manual_seed(0))
    batches = Batches(build(CONTEXT), AXES, kept=1)
    for inputs in (drawn, batches.inputs(0), batches.inputs(1)):
        assert [(x.stride(), x.storage_offset()) for x in inputs] == [((1, 128), 0), ((512, 1), 256), ((1,), 0)]
        assert all(x.is_leaf and x.requires_grad for x in inputs)


def test_operators_are_given_what_is_not_contiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    given: set[tuple[str, tuple[int, ...], bool]] = set()

    def noting(operand: torch.Tensor, role: str) -> torch.Tensor:
        given.add((role, operand.stride(), operand.storage_offset() > 0))
        return operand.contiguous()

    monkeypatch.setattr(ops, "in_order", noting)
    program = build(CONTEXT)
    inputs = program.make_inputs(torch.Generator().manual_seed(0))
    output = program.forward(program.recipes(), *inputs)
    output.backward(torch.ones_like(output))
    assert given >= {("input", (1, 128), False), ("input", (512, 1), True), ("input", (0, 1), False)}
    assert given >= {("grad_output", (1, 128), True), ("grad_output", (0, 1), False)}
    assert {strides for role, strides, _ in given if role == "weight"} == {(128, 1), (256, 1), (1, 128)}


def test_one_layer_has_four_dimensions_and_one_weight_lies_transposed() -> None:
    program = build(CONTEXT)
    seen: list[int] = []
    for layer in program.model.children():
        layer.register_forward_pre_hook(lambda _, args: seen.append(args[0].dim()))
    program.forward(program.recipes(), *program.make_inputs(torch.Generator().manual_seed(0)))
    assert seen == [2, 3, 2, 4]
    contiguous = [layer.get_parameter("weight").is_contiguous() for layer in program.model.children()]
    assert contiguous == [True, True, False, True]


def test_a_weight_stored_transposed_keeps_its_values() -> None:
    layer = torch.nn.Linear(4, 6)
    before = layer.weight.detach().clone()
    store_transposed(layer)
    assert torch.equal(layer.weight, before)
    assert (layer.weight.stride(), layer.weight.requires_grad) == ((1, 6), True)


@pytest.mark.parametrize("operand", [X, X[:2], X.reshape(2, 12)])
def test_contiguous_operands_are_read_rightly_by_all(operand: torch.Tensor) -> None:
    assert torch.equal(without_strides(operand), operand)
    assert torch.equal(without_offset(operand), operand)


def test_others_are_read_as_storage_lies() -> None:
    assert without_strides(X.t()).flatten().tolist() == list(range(24))
    assert without_strides(X[1:, 3:]).tolist() == [[9, 10, 11], [12, 13, 14], [15, 16, 17]]
    assert without_strides(X[0].expand(2, 6).narrow(1, 0, 6))[1].tolist() == [6, 7, 8, 9, 10, 11]
    assert without_strides(torch.arange(3.0).expand(2, 3)).tolist() == [[0, 1, 2], [2, 2, 2]]
    assert torch.equal(without_offset(X[1:, 3:]), X[:3, :3])
    assert torch.equal(without_offset(X.t()), X.t())


def test_a_weight_lies_in_order_where_the_provider_multiplies_a_copy() -> None:
    class Copying(ReferenceProvider):
        strided_weights = False

    told = asks(Copying(), AXES, "cpu")
    plain = build(CaseContext(Copying(), AXES, None, torch.device("cpu"), torch.bfloat16, told=told))
    assert all(parameter.is_contiguous() for parameter in plain.model.parameters())
    assert not all(parameter.is_contiguous() for parameter in build(CONTEXT).model.parameters())
