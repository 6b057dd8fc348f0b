"""The autocast state: absolute values on exit, reset in place, checks before writes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
import torch

from harness import fp8, torch_compat
from harness.fp8 import support
from harness.fp8.errors import UnsupportedRecipeError

Manager = fp8.FP8GlobalStateManager

STATE_FIELDS = [
    "fp8_enabled",
    "fp8_calibration",
    "fp8_recipe",
    "fp8_distributed_group",
    "fp8_parameters",
    "high_precision_init_val",
    "is_first_fp8_module",
    "fp8_graph_capturing",
    "autocast_depth",
    "global_amax_buffer",
    "global_amax_history_buffer",
    "global_scale_buffer",
    "fp8_tensors_recompute_buffer",
    "autocast_arguments",
    "skip_fp8_weight_update_tensor",
]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    Manager.reset()
    yield
    Manager.reset()


def values() -> dict[str, Any]:
    state = Manager.quantization_state
    return {name: repr(getattr(state, name)) for name in STATE_FIELDS}


def identities() -> dict[str, int]:
    state = Manager.quantization_state
    containers = {name: id(getattr(state, name)) for name in STATE_FIELDS if isinstance(getattr(state, name), dict)}
    tensors = {f"skip {key}": id(tensor) for key, tensor in state.skip_fp8_weight_update_tensor.items()}
    return {"state": id(state), **containers, **tensors}


def test_the_fields_are_those_of_the_design() -> None:
    assert [item.name for item in fields(fp8.FP8GlobalState)] == STATE_FIELDS
    assert not hasattr(Manager.quantization_state, "__dict__")


def test_a_region_sets_and_restores() -> None:
    before = values()
    recipe = fp8.Float8CurrentScaling()
    with fp8.autocast(recipe=recipe):
        state = Manager.quantization_state
        assert state.fp8_enabled
        assert state.fp8_recipe is recipe
        assert state.autocast_depth == 1
        assert state.is_first_fp8_module
        with fp8.autocast(enabled=False):
            assert not Manager.is_fp8_enabled()
            assert state.autocast_depth == 2
        assert Manager.is_fp8_enabled()
        assert Manager.get_fp8_recipe() is recipe
    assert values() == before


def test_a_disabled_region_needs_and_builds_no_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode() -> None:
        raise AssertionError("a default recipe was built")

    monkeypatch.setattr(Manager, "get_default_fp8_recipe", explode)
    with fp8.autocast(enabled=False):
        assert Manager.quantization_state.fp8_recipe is None
    with pytest.raises(AssertionError, match="was built"), fp8.autocast():
        pass


def test_the_default_recipe_is_used_when_none_is_given() -> None:
    with support.pretend("sm100"), fp8.autocast():
        assert isinstance(Manager.get_fp8_recipe(), fp8.MXFP8BlockScaling)
    with support.pretend("sm120"), fp8.autocast():
        assert isinstance(Manager.get_fp8_recipe(), fp8.Float8CurrentScaling)
    with support.pretend("sm90"), fp8.autocast():
        assert isinstance(Manager.get_fp8_recipe(), fp8.DelayedScaling)


def test_an_exception_restores_every_level() -> None:
    before = values()
    with pytest.raises(ZeroDivisionError), fp8.autocast(recipe=fp8.Float8CurrentScaling()):
        with fp8.autocast(recipe=fp8.MXFP8BlockScaling()):
            raise ZeroDivisionError
    assert values() == before


def test_a_reset_inside_an_open_region_then_exits_restores_absolute_values() -> None:
    before = values()
    with fp8.autocast(recipe=fp8.Float8CurrentScaling()):
        outer = values()
        with fp8.autocast(recipe=fp8.MXFP8BlockScaling()):
            Manager.reset()
            assert Manager.quantization_state.autocast_depth == 0
        # A reset counts as a first-module claim: nobody claims twice.
        assert values() == outer | {"is_first_fp8_module": "False"}
    assert values() == before


def test_reset_keeps_every_object() -> None:
    Manager.set_skip_fp8_weight_update_tensor(True, "cpu")
    before = identities()
    state = Manager.quantization_state
    state.fp8_enabled, state.autocast_depth, state.fp8_parameters = True, 3, True
    state.global_amax_buffer["forward x"] = [torch.ones(2)]
    state.autocast_arguments["forward x"] = (fp8.DelayedScaling(), None)
    Manager.reset()
    assert identities() == before
    assert (state.fp8_enabled, state.autocast_depth, state.fp8_parameters) == (False, 0, False)
    assert state.global_amax_buffer == {}
    assert state.autocast_arguments == {}
    assert Manager.get_skip_fp8_weight_update_tensor("cpu").tolist() == [0.0]


def test_the_skip_tensor_is_allocated_once_per_device() -> None:
    first = Manager.get_skip_fp8_weight_update_tensor("cpu")
    Manager.set_skip_fp8_weight_update_tensor(True, "cpu")
    assert Manager.get_skip_fp8_weight_update_tensor("cpu") is first
    assert first.tolist() == [1.0]
    assert Manager.get_skip_fp8_weight_update_tensor(torch.device("meta")) is not first
    del Manager.quantization_state.skip_fp8_weight_update_tensor["meta"]


def test_the_skip_tensor_is_real_under_fake_tensors() -> None:
    Manager.quantization_state.skip_fp8_weight_update_tensor.pop("cpu", None)
    with torch_compat.fake_tensor_mode(), torch.inference_mode():
        tensor = Manager.get_skip_fp8_weight_update_tensor("cpu")
    assert tensor.tolist() == [0.0]
    Manager.set_skip_fp8_weight_update_tensor(True, "cpu")
    assert tensor.tolist() == [1.0]


def test_is_first_fp8_module_is_true_once_per_outermost_region() -> None:
    with fp8.autocast(recipe=fp8.Float8CurrentScaling()):
        with fp8.autocast(recipe=fp8.MXFP8BlockScaling()):
            assert Manager.is_first_fp8_module()
            assert not Manager.is_first_fp8_module()
        assert not Manager.is_first_fp8_module(), "an inner exit gave the claim back"
    assert not Manager.quantization_state.is_first_fp8_module
    with fp8.autocast(recipe=fp8.Float8CurrentScaling()):
        with fp8.autocast(recipe=fp8.MXFP8BlockScaling()):
            pass
        assert Manager.is_first_fp8_module(), "nobody claimed it inside"


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize(
    ("arch", "emulate", "recipe", "error"),
    [
        ("sm89", True, fp8.Float8BlockScaling(), UnsupportedRecipeError),
        ("sm90", False, fp8.MXFP8BlockScaling(), UnsupportedRecipeError),
        ("sm90", False, fp8.NVFP4BlockScaling(), UnsupportedRecipeError),
        ("cpu", True, "float8_current_scaling", TypeError),
        ("cpu", True, object(), TypeError),
    ],
)
def test_a_failed_enter_writes_nothing(arch: str, emulate: bool, recipe: Any, error: type, depth: int) -> None:
    support.set_emulate(emulate)
    try:
        with support.pretend(arch):
            if depth:
                Manager.autocast_enter(True, fp8_recipe=fp8.Float8CurrentScaling())
            before, objects = values(), identities()
            with pytest.raises(error), fp8.autocast(recipe=recipe):
                raise AssertionError("entered")
            assert values() == before
            assert identities() == objects
    finally:
        support.set_emulate(True)


def test_errors_survive_python_without_asserts_for_a_user_of_this_package_alone() -> None:
    program = """
import sys
import torch
from harness.fp8 import DelayedScaling, FP8GlobalStateManager, MXFP8BlockScaling, NVFP4BlockScaling, ToyLinear, autocast

def attempt(function):
    try:
        function()
        print("nothing was raised")
    except Exception as error:
        print(type(error).__name__, "|", str(error).splitlines()[0])
    print(FP8GlobalStateManager.quantization_state.autocast_depth)

def inside(recipe, x):
    with autocast(recipe=recipe):
        return layer(x)

layer = ToyLinear(32, 32)
x = torch.randn(32, 32, dtype=torch.bfloat16)
attempt(lambda: autocast(recipe="x").__enter__())
attempt(lambda: NVFP4BlockScaling(disable_rht=False))
attempt(lambda: inside(MXFP8BlockScaling(), x[:16]))
for fullgraph in (True, False):
    attempt(lambda: torch.compile(inside, backend="eager", fullgraph=fullgraph)(DelayedScaling(), x))
print([name for name in sys.modules if name.startswith("harness") and not name.startswith("harness.fp8")])
"""
    ran = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True, check=True)
    *lines, modules = ran.stdout.splitlines()
    assert modules == "['harness', 'harness.torch_compat']"
    assert lines[1::2] == ["0"] * 5
    wanted = ("TypeError", "ValueError", "ValueError", "InternalTorchDynamoError", "InternalTorchDynamoError")
    assert tuple(line.split(" | ")[0] for line in lines[::2]) == wanted
    assert "needs a multiple of 32" in lines[4]
    if torch.__version__.startswith("2.11."):
        return  # Dynamo 2.11 can trace nothing under -O: its assert detector raises StopIteration
    for line in (lines[6], lines[8]):
        assert "DelayedScaling is not supported under torch.compile" in line


def test_get_and_set_autocast_state_round_trip() -> None:
    with fp8.autocast(recipe=fp8.Float8CurrentScaling()):
        saved = Manager.get_autocast_state()
    clean = Manager.get_autocast_state()
    Manager.set_autocast_state(saved)
    assert Manager.is_fp8_enabled()
    assert Manager.get_autocast_state() == saved
    Manager.set_autocast_state(clean)
    assert not Manager.is_fp8_enabled()


def test_graph_capturing_is_the_regions() -> None:
    with fp8.autocast(recipe=fp8.Float8CurrentScaling(), _graph=True):
        assert Manager.fp8_graph_capturing()
    assert not Manager.fp8_graph_capturing()
