"""The reference system on a GPU: kernels against float64, compiled against eager, what the profiler saw."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from harness import fp8
from harness.fp8 import support
from harness.fp8.recipe import RECIPE_CLASSES
from harness.providers.reference import ReferenceProvider
from harness.types import PARTNERS, RECIPES, Spec
from tests.support.fp8 import STATELESS, clean_fp8, counted, gradients, layers, nested, one_region
from tests.test_providers_reference import decoded

__all__ = ["clean_fp8"]

SIZE = 256


@pytest.fixture(autouse=True)
def gpu(clean_fp8: None) -> None:
    # Asked here and not at collection: initialising CUDA while collecting breaks forked workers.
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


def batch() -> torch.Tensor:
    return torch.randn(SIZE, SIZE, dtype=torch.bfloat16, device="cuda", requires_grad=True)


def on_this_gpu(name: str) -> str:
    return support.level_on(name, support.current_device()).level


def recipes(*candidates: str) -> None:
    for name in candidates:
        if on_this_gpu(name) == "unsupported":
            pytest.skip(f"{name} is not supported on {support.architecture(support.current_device())}")


@pytest.mark.parametrize("name", RECIPES)
def test_the_tapped_operands_multiply_to_the_tapped_output(name: str) -> None:
    recipes(name)
    provider = ReferenceProvider()
    layer = provider.linear(SIZE, 384, bias=True, dtype=torch.bfloat16, device=torch.device("cuda"))
    with provider.tap() as records:
        with provider.autocast(recipe=provider.recipe(Spec(name))):
            y = layer(batch())
        y.backward(torch.randn_like(y))
    assert [record.product for record in records] == ["fprop", "dgrad", "wgrad"]
    for record in records:
        a, b = decoded(record.a), decoded(record.b)
        exact, magnitude = a @ b.t(), a.abs() @ b.abs().t()
        # Hopper keeps 13 to 14 bits within a group of products: 2^-12 of the magnitudes, measured, and a factor of 4.
        bound = 2.0**-10 * magnitude + 2.0**-8 * exact.abs()
        assert ((record.output.double() - exact).abs() <= bound).all(), record.product


@pytest.mark.parametrize("name", RECIPES)
def test_bytes_and_scales_equal_those_of_the_cpu(name: str) -> None:
    recipes(name)
    taken = {}
    for device in ("cpu", "cuda"):
        provider = ReferenceProvider()
        torch.manual_seed(0)
        layer = provider.linear(SIZE, SIZE, bias=False, dtype=torch.bfloat16, device=torch.device("cpu")).to(device)
        x = torch.randn(SIZE, SIZE, dtype=torch.bfloat16).to(device).requires_grad_()
        with provider.tap() as records:
            with provider.autocast(recipe=provider.recipe(Spec(name))):
                y = layer(x)
            y.backward(torch.linspace(-1, 1, SIZE * SIZE).reshape(SIZE, SIZE).to(y))
        taken[device] = records
    for left, right in zip(taken["cpu"], taken["cuda"], strict=True):
        for ours, theirs in ((left.a, right.a), (left.b, right.b)):
            assert torch.equal(ours.codes, theirs.codes.cpu()), (left.product, ours.role)
            assert torch.equal(ours.scale, theirs.scale.cpu()), (left.product, ours.role)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("outer", STATELESS)
def test_nested_regions_are_one_graph_and_equal_eager(outer: Any, backend: str) -> None:
    inner = RECIPE_CLASSES[PARTNERS[outer.name]]
    recipes(outer.name, inner.name)
    model, x = layers(4, SIZE, device="cuda"), batch()
    compiled, counter = counted(nested(model), backend)
    expected = gradients(nested(model), model, x, outer(), inner())
    actual = gradients(compiled, model, x, outer(), inner())
    assert counter.frame_count == 1
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))


def test_inductor() -> None:
    model, x = layers(4, SIZE, device="cuda"), batch()
    compiled, counter = counted(nested(model), "inductor")
    expected = gradients(nested(model), model, x, fp8.Float8CurrentScaling(), fp8.Float8RowwiseScaling())
    actual = gradients(compiled, model, x, fp8.Float8CurrentScaling(), fp8.Float8RowwiseScaling())
    assert counter.frame_count == 1
    for a, b in zip(actual, expected, strict=True):
        assert ((a - b).float().norm() / b.float().norm()).item() < 0.05


@pytest.mark.parametrize("name", RECIPES)
def test_gemms_sees_what_ran(name: str) -> None:
    recipes(name)
    provider = ReferenceProvider()
    model = layers(2, SIZE, device="cuda")

    def step() -> None:
        one_region(model)(batch(), provider.recipe(Spec(name))).sum().backward()

    step()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as trace:
        step()
        torch.cuda.synchronize()
    records = provider.gemms(trace)
    kind = "fp8_native" if on_this_gpu(name) == "native" else "fp8_emulated"
    assert Counter(record.kind for record in records) == {kind: 6}, records


def test_delayed_scales_move() -> None:
    model = layers(1, SIZE, device="cuda")
    for _ in range(2):
        one_region(model)(batch(), fp8.DelayedScaling()).sum().backward()
    scale = model[0].delayed.scale
    assert scale.is_cuda
    assert (scale != 1.0).all()


def test_the_skip_tensor_switches_a_captured_graph() -> None:
    layer, x = layers(1, SIZE, device="cuda")[0], batch().detach()
    recipe = fp8.Float8CurrentScaling()
    layer.prepare_weight_cache(recipe)

    def forward() -> torch.Tensor:
        with torch.no_grad(), fp8.autocast(recipe=recipe, _graph=True):
            return layer(x, is_first_microbatch=False)  # type: ignore[no-any-return]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        forward()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = forward()
    graph.replay()
    old = y.clone()
    with torch.no_grad():
        layer.weight.mul_(-1.5)
    fp8.FP8GlobalStateManager.set_skip_fp8_weight_update_tensor(True, layer.weight.device)
    graph.replay()
    assert torch.equal(y, old)
    fp8.FP8GlobalStateManager.reset()
    graph.replay()
    assert not torch.equal(y, old), "after a reset the graph must still read the live flag"
