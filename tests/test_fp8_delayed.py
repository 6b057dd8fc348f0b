"""Delayed scaling in eager mode: scales that move as worked out by hand; its refusal under torch.compile."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from harness import fp8
from harness.fp8.delayed import DelayedTensors, next_scale
from harness.fp8.errors import DelayedScalingUnderCompileError
from harness.fp8.tap import Product, listening
from tests.support.fp8 import batch, chain, clean_fp8, counted, layers, one_region

__all__ = ["clean_fp8"]
pytestmark = pytest.mark.usefixtures("clean_fp8")

Manager = fp8.FP8GlobalStateManager


def step(layer: torch.nn.Module, recipe: Any, value: float, gradient: float) -> list[Product]:
    """One step with an input of one value and a gradient of another."""
    x = torch.full((16, 16), value, dtype=torch.bfloat16, requires_grad=True)
    products: list[Product] = []
    with listening(products.append):
        with fp8.autocast(recipe=recipe):
            y = layer(x)
        y.backward(torch.full_like(y, gradient))
    return products


def weight_of(value: float) -> fp8.ToyLinear:
    layer = fp8.ToyLinear(16, 16, bias=False)
    with torch.no_grad():
        layer.weight.fill_(value)
    return layer


def inverse(scale: float) -> float:
    """1 / scale, rounded to float32."""
    return (torch.tensor(1.0) / torch.tensor(scale)).item()


def scales(layer: fp8.ToyLinear) -> list[float]:
    assert layer.delayed is not None
    return layer.delayed.scale.tolist()


@pytest.mark.parametrize(
    ("algo", "expected"),
    [
        # input amaxes 7, 14, 3.5, 3.5: history of two holds the last two steps
        ("max", [64.0, 32.0, 32.0, 128.0]),
        ("most_recent", [64.0, 32.0, 128.0, 128.0]),
    ],
)
def test_scales_follow_the_history(algo: str, expected: list[float]) -> None:
    layer = weight_of(0.5)
    recipe = fp8.DelayedScaling(amax_history_len=2, amax_compute_algo=algo)
    seen, used = [], []
    for value in (7.0, 14.0, 3.5, 3.5):
        used.append(step(layer, recipe, value, 1.0)[0].a.scale.item())
        seen.append(scales(layer)[0])
    assert seen == expected
    assert used == [1.0, *(1 / s for s in expected[:-1])], "a step quantises with the scale before its own update"


def test_each_tensor_has_its_own_scale_and_format() -> None:
    layer = weight_of(0.5)
    step(layer, fp8.DelayedScaling(), 7.0, 2.0)
    assert scales(layer) == [448 / 7, 448 / 0.5, 57344 / 2]
    e4m3 = weight_of(0.5)
    step(e4m3, fp8.DelayedScaling(fp8_format=fp8.Format.E4M3), 7.0, 2.0)
    assert scales(e4m3) == [448 / 7, 448 / 0.5, 448 / 2]


def test_margin_divides_by_a_power_of_two() -> None:
    layer = weight_of(0.5)
    step(layer, fp8.DelayedScaling(margin=3), 7.0, 2.0)
    assert scales(layer) == [8.0, 112.0, 3584.0]


def test_the_history_rolls_and_row_zero_is_cleared() -> None:
    layer = weight_of(0.5)
    for value in (7.0, 14.0):
        step(layer, fp8.DelayedScaling(amax_history_len=3), value, 1.0)
    assert layer.delayed is not None
    # After each step history = roll(history, -1): step 1 ends in the last row, step 2 pushes it up by one.
    assert layer.delayed.history[:, 0].tolist() == [0.0, 7.0, 14.0]


def test_backward_uses_the_scales_of_its_own_forward() -> None:
    layer = weight_of(0.5)
    recipe = fp8.DelayedScaling()
    step(layer, recipe, 7.0, 2.0)
    products = step(layer, recipe, 14.0, 4.0)
    fprop, dgrad, wgrad = products
    assert wgrad.b.scale.item() == fprop.a.scale.item() == 1 / 64
    assert dgrad.b.scale.item() == fprop.b.scale.item() == inverse(896.0)
    assert dgrad.a.scale.item() == wgrad.a.scale.item() == inverse(28672.0), "the gradient's scale is a step old"


def test_two_forwards_before_two_backwards() -> None:
    layer, recipe = weight_of(0.5), fp8.DelayedScaling()
    outputs = []
    for value in (7.0, 14.0):
        x = torch.full((16, 16), value, dtype=torch.bfloat16, requires_grad=True)
        with fp8.autocast(recipe=recipe):
            outputs.append(layer(x))
    products: list[Product] = []
    with listening(products.append):
        for y in reversed(outputs):
            y.sum().backward()
    inputs = [p.b.scale.item() for p in products if p.product == "wgrad"]
    assert inputs == [1 / 64, 1.0], "each backward has the scales of its own forward, though they have moved on"


def test_a_module_called_twice_in_a_region_updates_once_with_the_larger_amax() -> None:
    layer, recipe = weight_of(0.5), fp8.DelayedScaling(amax_history_len=2)
    with fp8.autocast(recipe=recipe):
        for value in (7.0, 3.5):
            layer(torch.full((16, 16), value, dtype=torch.bfloat16))
    assert scales(layer)[0] == 64.0
    assert layer.delayed is not None
    assert layer.delayed.history[:, 0].tolist() == [0.0, 7.0]


def test_only_the_outermost_exit_updates() -> None:
    layer, recipe = weight_of(0.5), fp8.DelayedScaling()
    x = torch.full((16, 16), 7.0, dtype=torch.bfloat16)
    with fp8.autocast(recipe=fp8.Float8CurrentScaling()):
        with fp8.autocast(recipe=recipe):
            layer(x)
        assert scales(layer) == [1.0, 1.0, 1.0]
    assert scales(layer) == [64.0, 896.0, 1.0]


def test_zero_and_non_finite_amaxes_keep_the_previous_scale() -> None:
    amax = torch.tensor([0.0, float("inf"), float("nan"), 1e-40, 2.0])
    result = next_scale(amax, torch.full((5,), 3.0), 448.0, 0)
    assert result.tolist() == [3.0, 3.0, 3.0, torch.finfo(torch.float32).max, 224.0]


def test_inference_moves_no_scale() -> None:
    layer, recipe = weight_of(0.5), fp8.DelayedScaling()
    step(layer, recipe, 7.0, 1.0)
    before = copy.deepcopy(layer.delayed)
    with torch.no_grad(), fp8.autocast(recipe=recipe):
        layer(torch.full((16, 16), 100.0, dtype=torch.bfloat16))
    assert layer.delayed is not None
    assert before is not None
    assert torch.equal(layer.delayed.scale, before.scale)
    assert torch.equal(layer.delayed.history, before.history)


def test_calibration_records_without_quantising() -> None:
    layer = weight_of(0.5)
    x = torch.full((16, 16), 7.0, dtype=torch.bfloat16, requires_grad=True)
    products: list[Product] = []
    with listening(products.append), fp8.autocast(enabled=False, calibrating=True, recipe=fp8.DelayedScaling()):
        y = layer(x)
    assert products == []
    assert torch.equal(y, torch.nn.functional.linear(x, layer.weight))
    assert scales(layer) == [64.0, 896.0, 1.0]
    with fp8.autocast(enabled=False, calibrating=True, recipe=fp8.Float8CurrentScaling()):
        layer(x)


def test_the_global_buffers_are_empty_between_steps() -> None:
    layer = weight_of(0.5)
    state = Manager.quantization_state
    x = torch.full((16, 16), 7.0, dtype=torch.bfloat16, requires_grad=True)
    with fp8.autocast(recipe=fp8.DelayedScaling()):
        y = layer(x)
        assert len(state.global_amax_buffer) == len(state.autocast_arguments) == 1
    for moment in ("after forward", "after backward"):
        for name in ("global_amax_buffer", "global_amax_history_buffer", "global_scale_buffer", "autocast_arguments"):
            assert getattr(state, name) == {}, (moment, name)
        if moment == "after forward":
            y.sum().backward()


def test_a_backward_pass_that_fails_leaves_the_buffers_empty_and_counts_in_the_next() -> None:
    layer, state = weight_of(0.5), Manager.quantization_state

    def fail(grad: torch.Tensor) -> None:
        raise ZeroDivisionError

    x = torch.full((16, 16), 7.0, dtype=torch.bfloat16, requires_grad=True)
    x.register_hook(fail)
    with fp8.autocast(recipe=fp8.DelayedScaling()):
        y = layer(x)
    with pytest.raises(ZeroDivisionError):
        y.backward(torch.full_like(y, 4.0))
    assert state.global_amax_buffer == state.global_scale_buffer == state.autocast_arguments == {}
    assert scales(layer)[2] == 1.0
    step(layer, fp8.DelayedScaling(), 7.0, 2.0)
    assert scales(layer)[2] == 57344 / 4, "the failed pass had seen 4, the one after it 2"


def test_a_layer_that_backward_meets_twice_is_updated_once() -> None:
    layer = weight_of(0.5)
    x = torch.full((16, 16), 7.0, dtype=torch.bfloat16, requires_grad=True)
    with fp8.autocast(recipe=fp8.DelayedScaling(amax_history_len=3)):
        y = torch.cat((layer(x), layer(x)))
    y.backward(torch.cat((torch.full((16, 16), 4.0), torch.full((16, 16), 2.0))).to(y.dtype))
    assert layer.delayed is not None
    assert layer.delayed.history[:, 2].tolist() == [0.0, 0.0, 4.0]


def test_a_changed_history_length_keeps_what_was_recorded() -> None:
    layer = weight_of(0.5)
    step(layer, fp8.DelayedScaling(amax_history_len=2), 7.0, 1.0)
    kept = scales(layer)
    with torch.no_grad(), fp8.autocast(recipe=fp8.DelayedScaling(amax_history_len=4)):
        layer(torch.ones(16, 16, dtype=torch.bfloat16))
    assert layer.delayed is not None
    assert layer.delayed.history.shape == (4, 3)
    assert layer.delayed.history[1, 0].item() == 7.0
    assert scales(layer) == kept


def test_a_group_takes_the_largest_amax_of_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def all_reduce(tensor: torch.Tensor, op: Any, group: Any) -> None:
        asked.append(group)
        tensor.mul_(2.0)

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    layer = weight_of(0.5)
    x = torch.full((16, 16), 7.0, dtype=torch.bfloat16, requires_grad=True)
    with fp8.autocast(recipe=fp8.DelayedScaling(), amax_reduction_group="ranks"):
        y = layer(x)
    y.backward(torch.ones_like(y))
    assert scales(layer) == [32.0, 448.0, 28672.0]
    assert asked == ["ranks", "ranks"]


def test_record_folds_into_row_zero() -> None:
    tensors = DelayedTensors(2, torch.device("cpu"))
    for value in (1.0, -5.0, 2.0):
        tensors.record(1, torch.tensor([value]))
    tensors.record(1, torch.empty(0))
    assert tensors.history.tolist() == [[0.0, 5.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("around", [True, False])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_refused_under_compile_on_each_call_and_in_both_modes(fullgraph: bool, around: bool, backend: str) -> None:
    model = layers(1)
    state = Manager.quantization_state
    before = repr(state)
    compiled, counter = counted(model[0] if around else one_region(model), backend, fullgraph)

    def call() -> None:
        if not around:
            compiled(batch(), fp8.DelayedScaling())
        with fp8.autocast(recipe=fp8.DelayedScaling()):
            compiled(batch())

    for _ in range(3):
        with pytest.raises(Exception, match=r"(?s)DelayedScaling.*not supported under torch\.compile") as caught:
            call()
        assert any(isinstance(link, DelayedScalingUnderCompileError) for link in chain(caught.value))
        assert repr(state) == before
    assert counter.frame_count == 0
    assert model[0].delayed is None
    one_region(model)(batch(), fp8.DelayedScaling())


def test_the_refusal_is_a_runtime_error() -> None:
    assert issubclass(DelayedScalingUnderCompileError, RuntimeError)


def test_a_backward_that_ends_with_an_exception_leaves_the_global_state_as_it_was() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            raise KeyError("backward")

    (layer,), x = layers(1), batch()
    before = repr(Manager.quantization_state)
    with fp8.autocast(recipe=fp8.DelayedScaling()):
        y = layer(Fails.apply(x))
    with pytest.raises(KeyError):
        y.sum().backward()
    assert repr(Manager.quantization_state) == before
    with fp8.autocast(recipe=fp8.DelayedScaling()):
        y = layer(x) + layer(x)
    y.sum().backward()
    assert layer.delayed.scale[2] != 1.0, "the next backward updates all the same, once for both uses"
    assert layer.delayed.history[-1, 2] == 1.0
    assert not bool(layer.delayed.history[:-1, 2].any())
