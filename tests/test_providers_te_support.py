"""Beliefs come from the library's own checks; pretending to be another GPU leaves no cached answer, in or out."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.providers import te_stack, te_support
from harness.types import ARCHES, RECIPES, Spec
from tests.support.te import forget, install


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    install(monkeypatch, tmp_path)
    te_stack.require()
    monkeypatch.setattr(te_support, "host_arch", lambda: "sm90")
    yield
    forget()


def quantization() -> Any:
    return te_stack.module("pytorch.quantization")


def answers() -> tuple[Any, ...]:
    """What the library's own functions say now, cached or not."""
    utils, checks = te_stack.module("pytorch.utils"), quantization()
    return (
        utils.get_device_compute_capability(),
        checks.get_device_compute_capability(),
        checks.is_fp8_available()[0],
        checks.is_mxfp8_available()[0],
        utils.is_non_tn_fp8_gemm_supported(),
    )


HERE = ((9, 0), (9, 0), True, False, False)
BLACKWELL = ((10, 0), (10, 0), True, True, True)
AMPERE = ((8, 0), (8, 0), False, False, False)


def test_a_pretence_is_believed_and_ends() -> None:
    assert answers() == HERE
    with te_support.pretend("sm100"):
        assert te_support.pretended() == "sm100"
        assert answers() == BLACKWELL
    assert answers() == HERE
    assert te_support.pretended() == ""


def test_no_cache_filled_inside_outlives_it() -> None:
    """Nothing was asked before: whatever is cached was cached under the pretence."""
    with te_support.pretend("sm80"):
        assert answers() == AMPERE
    assert answers() == HERE


def test_pretences_nest_and_end_with_an_exception() -> None:
    with te_support.pretend("sm80"):
        with pytest.raises(KeyError), te_support.pretend("sm100"):
            raise KeyError
        assert answers() == AMPERE
    assert answers() == HERE


def test_the_cpu_is_no_architecture_of_this_library() -> None:
    with te_support.pretend("cpu"):
        assert answers() == HERE


@pytest.mark.parametrize("arch", ["host", "sm", "sm9", "smxx", "90"])
def test_what_is_no_architecture_is_a_value_error(arch: str) -> None:
    with pytest.raises(ValueError, match="not an architecture"), te_support.pretend(arch):
        pass
    assert answers() == HERE


def test_the_register_of_recipes_is_empty_inside_and_comes_back() -> None:
    register = quantization().FP8GlobalStateManager.quantization_state.autocast_arguments
    register["mine"] = 1
    with te_support.pretend("sm100"):
        assert register == {}
        register["of the pretence"] = 2
    assert register == {"mine": 1}
    assert quantization().FP8GlobalStateManager.quantization_state.autocast_arguments is register


def test_only_caches_about_the_device_are_emptied() -> None:
    utils = te_stack.module("pytorch.utils")
    kept = utils.knows_nothing_of_devices()
    te_support.forget()
    assert utils.knows_nothing_of_devices() is kept
    assert te_support.asks_device(utils.is_non_tn_fp8_gemm_supported)
    assert not te_support.asks_device(utils.knows_nothing_of_devices)
    assert not te_support.asks_device(functools.partial(print))


@pytest.mark.parametrize(
    ("arch", "native"),
    [
        ("sm89", {"delayed_scaling", "float8_current_scaling"}),
        ("sm90", {"delayed_scaling", "float8_current_scaling", "float8_block_scaling"}),
        ("sm100", set(RECIPES) - {"float8_rowwise_scaling"}),
        ("sm120", set(RECIPES) - {"float8_rowwise_scaling", "mxfp8_block_scaling"}),
        ("cpu", set()),
    ],
)
def test_beliefs_are_the_librarys(arch: str, native: set[str]) -> None:
    beliefs = {name: te_support.supports(Spec(name), arch) for name in RECIPES}
    assert {name for name, belief in beliefs.items() if belief.level == "native"} == native
    refused = [belief for belief in beliefs.values() if belief.level == "unsupported"]
    assert all(belief.reason and belief.error == "RuntimeError" for belief in refused)
    assert answers() == HERE


def test_what_the_library_has_not_is_not_offered() -> None:
    for arch in set(ARCHES) - {"host"}:
        belief = te_support.supports(Spec("float8_rowwise_scaling"), arch)
        assert (belief.offered, belief.reason) == (False, "Transformer Engine has no recipe for float8_rowwise_scaling")
    on_cpu = te_support.supports(Spec("delayed_scaling"), "cpu")
    assert (on_cpu.offered, on_cpu.reason) == (False, "Transformer Engine needs a CUDA device")
    assert te_support.supports(Spec("mxfp8_block_scaling"), "sm90").offered


def test_a_version_without_the_question_offers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(quantization(), "is_nvfp4_available")
    belief = te_support.supports(Spec("nvfp4_block_scaling"), "sm90")
    assert (belief.offered, belief.reason) == (False, "this Transformer Engine has no is_nvfp4_available")


def test_inside_a_pretence_beliefs_are_of_that_architecture() -> None:
    with te_support.pretend("sm100"):
        assert te_support.supports(Spec("mxfp8_block_scaling"), "sm100").level == "native"
        assert te_support.supports(Spec("mxfp8_block_scaling"), "sm90").level == "unsupported"
        assert answers() == BLACKWELL


@pytest.mark.parametrize(
    ("arch", "wanted"),
    [("sm90", "delayed_scaling"), ("sm100", "mxfp8_block_scaling"), ("sm120", "float8_current_scaling")],
)
def test_the_default_recipe_is_the_library_s_own_choice(arch: str, wanted: str) -> None:
    assert te_support.default_recipe(arch) == Spec(wanted)
    assert te_support.pretended() == ""
    with te_support.pretend(arch):
        assert te_support.default_recipe(arch) == Spec(wanted)


def test_a_manager_that_chooses_the_default_is_asked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    module = quantization()
    choose = staticmethod(module.Float8CurrentScaling)
    monkeypatch.delattr(module, "get_default_fp8_recipe")
    monkeypatch.setattr(module.FP8GlobalStateManager, "get_default_fp8_recipe", choose, raising=False)
    assert te_support.default_recipe("sm90") == Spec("float8_current_scaling")
