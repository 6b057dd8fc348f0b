"""The region under torch.compile: one graph, eager's bits, guards on every field of a recipe, clean state."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from harness import fp8, torch_compat
from harness.fp8 import support
from harness.fp8.recipe import RECIPE_CLASSES
from harness.fp8.tap import Product, listening
from harness.types import PARTNERS
from tests.support.fp8 import (
    OTHER_FIELDS,
    STATELESS,
    batch,
    chain,
    clean_fp8,
    counted,
    gradients,
    layers,
    nested,
    one_region,
)

__all__ = ["clean_fp8"]
pytestmark = pytest.mark.usefixtures("clean_fp8")

Manager = fp8.FP8GlobalStateManager


def key_of(products: list[Product]) -> list[tuple[str, str, str]]:
    return [(p.key, p.product, p.phase) for p in products]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("outer", STATELESS)
def test_nested_regions_are_one_graph_and_equal_eager_bit_for_bit(outer: Any, backend: str) -> None:
    model, x = layers(4), batch()
    inner = RECIPE_CLASSES[PARTNERS[outer.name]]
    forward = nested(model)
    compiled, counter = counted(forward, backend)
    before = repr(Manager.quantization_state)
    seen: dict[str, list[Product]] = {"eager": [], "compiled": []}
    with listening(seen["eager"].append):
        expected = gradients(forward, model, x, outer(), inner())
    with listening(seen["compiled"].append):
        actual = gradients(compiled, model, x, outer(), inner())
    assert counter.frame_count == 1
    assert len(expected) == len(actual) == 10
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
    assert key_of(seen["compiled"]) == key_of(seen["eager"])
    assert [p.key for p in seen["compiled"][:3]] == [outer().key, inner().key, outer().key]
    assert repr(Manager.quantization_state) == before


def test_the_comparison_would_see_a_leaked_recipe() -> None:
    model, x = layers(4), batch()
    forward = nested(model)
    right = gradients(forward, model, x, fp8.Float8CurrentScaling(), fp8.Float8BlockScaling())
    leaked = gradients(forward, model, x, fp8.Float8CurrentScaling(), fp8.Float8CurrentScaling())
    assert not torch.equal(right[0], leaked[0])


def test_inductor_keeps_the_graph_and_the_products() -> None:
    model, x = layers(4), batch()
    compiled, counter = counted(nested(model), "inductor")
    expected = gradients(nested(model), model, x, fp8.Float8CurrentScaling(), fp8.MXFP8BlockScaling())
    products: list[Product] = []
    with listening(products.append):
        actual = gradients(compiled, model, x, fp8.Float8CurrentScaling(), fp8.MXFP8BlockScaling())
    assert counter.frame_count == 1
    assert len(products) == 9
    for a, b in zip(actual, expected, strict=True):
        assert ((a - b).float().norm() / b.float().norm()).item() < 0.05


@pytest.mark.parametrize("cls", STATELESS)
def test_equal_but_new_recipes_do_not_recompile(cls: Any) -> None:
    compiled, counter = counted(one_region(layers(1)))
    for _ in range(12):
        compiled(batch(), cls())
    assert counter.frame_count == 1


@pytest.mark.parametrize(("cls", "field", "value"), [item for item in OTHER_FIELDS if item[0] in STATELESS])
def test_a_differing_field_is_another_graph_and_other_arithmetic(cls: Any, field: str, value: Any) -> None:
    model = layers(1)
    compiled, counter = counted(one_region(model), "eager")
    x = batch()
    for recipe in (cls(), cls(**{field: value}), cls(), cls(**{field: value})):
        assert torch.equal(compiled(x, recipe), one_region(model)(x, recipe))
    assert counter.frame_count == 2


def test_recipes_made_inside_the_compiled_function() -> None:
    model = layers(4)

    def forward(x: torch.Tensor) -> torch.Tensor:
        with fp8.autocast(recipe=fp8.Float8CurrentScaling(amax_epsilon=1e-3)):
            x = model[0](x)
            with fp8.autocast(recipe=fp8.MXFP8BlockScaling(scale_rounding="floor")):
                x = model[1](x)
            with fp8.autocast(recipe=fp8.NVFP4BlockScaling(disable_2d_quantization=True)):
                x = model[2](x)
            with fp8.autocast(recipe=fp8.Float8BlockScaling(fp8_format=fp8.Format.HYBRID)):
                return model[3](x)

    compiled, counter = counted(forward)
    for _ in range(3):
        x = batch()
        assert torch.equal(compiled(x), forward(x))
    assert counter.frame_count == 1


def test_the_default_recipe_inside_the_compiled_function() -> None:
    model = layers(1)

    def forward(x: torch.Tensor) -> torch.Tensor:
        with fp8.autocast():
            return model[0](x)

    with support.pretend("sm100"):
        compiled, counter = counted(forward)
        x = batch()
        assert torch.equal(compiled(x), one_region(model)(x, fp8.MXFP8BlockScaling()))
    assert counter.frame_count == 1


def test_a_region_around_a_compiled_module_is_one_graph_for_each_setting() -> None:
    model = layers(1)
    compiled, counter = counted(model[0])
    x = batch()
    for recipe in (fp8.Float8CurrentScaling, fp8.Float8BlockScaling) * 3:
        with fp8.autocast(recipe=recipe()):
            y = compiled(x)
        assert torch.equal(y, one_region(model)(x, recipe()))
    compiled(x)
    assert counter.frame_count == 3


def test_a_nested_region_inside_and_another_around() -> None:
    model = layers(4)
    compiled, counter = counted(nested(model))
    x = batch()
    for _ in range(3):
        with fp8.autocast(recipe=fp8.NVFP4BlockScaling()):
            y = compiled(x, fp8.Float8CurrentScaling(), fp8.MXFP8BlockScaling())
            assert Manager.quantization_state.autocast_depth == 1
        assert torch.equal(y, nested(model)(x, fp8.Float8CurrentScaling(), fp8.MXFP8BlockScaling()))
    assert counter.frame_count == 1


def test_resets_between_calls_keep_the_graph() -> None:
    compiled, counter = counted(one_region(layers(1)))
    for _ in range(12):
        Manager.reset()
        compiled(batch(), fp8.Float8CurrentScaling())
    assert counter.frame_count == 1


def test_dynamic_batches_share_a_graph() -> None:
    model = layers(1)
    compiled, counter = counted(one_region(model), dynamic=True)
    for rows in (256, 384, 512):
        x = batch(rows)
        assert torch.equal(compiled(x, fp8.MXFP8BlockScaling()), one_region(model)(x, fp8.MXFP8BlockScaling()))
    assert counter.frame_count == 1


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_bad_shape_reaches_the_user_on_each_call(fullgraph: bool, dynamic: bool | None) -> None:
    before = repr(Manager.quantization_state)
    compiled, _ = counted(one_region(layers(1)), fullgraph=fullgraph, dynamic=dynamic)
    for _ in range(3):
        with pytest.raises(Exception, match=r"batch rows is 100, but .* needs a multiple of 16") as caught:
            compiled(batch(100), fp8.Float8CurrentScaling())
        assert any(isinstance(link, ValueError) for link in chain(caught.value))
        assert repr(Manager.quantization_state) == before


@pytest.mark.parametrize("fullgraph", [True, False])
def test_something_that_is_no_recipe_reaches_the_user(fullgraph: bool) -> None:
    compiled, _ = counted(one_region(layers(1)), fullgraph=fullgraph)
    with pytest.raises(Exception, match=r"must be a recipe of harness\.fp8, got str"):
        compiled(batch(), "float8_current_scaling")


def test_a_python_error_in_the_region_leaves_clean_state() -> None:
    model = layers(1)
    before = repr(Manager.quantization_state)

    def forward(x: torch.Tensor) -> torch.Tensor:
        with fp8.autocast(recipe=fp8.Float8CurrentScaling()):
            model[0](x)
            raise KeyError("user")

    with pytest.raises(KeyError, match="user"):
        counted(forward, fullgraph=False)[0](batch())
    assert repr(Manager.quantization_state) == before


@pytest.mark.parametrize("arch", ["sm89", "sm90", "sm100", "sm120"])
def test_fake_tensors_capture_graphs_for_another_architecture(arch: str) -> None:
    products: list[Product] = []
    with support.pretend(arch), torch_compat.fake_tensor_mode(), listening(products.append):
        model = layers(4)
        compiled, counter = counted(nested(model))
        x = batch()
        y = compiled(x, fp8.Float8CurrentScaling(), fp8.MXFP8BlockScaling())
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.shape == x.shape
    assert counter.frame_count == 1
    assert products == [], "nothing may execute"


def test_the_captured_graph_holds_one_operator_a_layer() -> None:
    compiled, counter = counted(nested(layers(4)))
    compiled(batch(), fp8.Float8CurrentScaling(), fp8.Float8BlockScaling())
    targets = [node.target for node in counter.graphs[0].graph.nodes]
    assert [torch_compat.operator_name(target) for target in targets].count("fp8ref::linear") == 3
    assert targets.count(torch.nn.functional.linear) == 1


def test_the_example_prints_one_graph() -> None:
    root = Path(__file__).parent.parent
    script = root / "examples" / "nested_autocast.py"
    environment = {**os.environ, "PYTHONPATH": str(root)}
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "fullgraph=True: 1 graph; compiled equals eager" in ran.stdout
    assert re.findall(r"^(?:from|import) (\S+)", script.read_text(), re.M) == ["torch", "harness.fp8"]
