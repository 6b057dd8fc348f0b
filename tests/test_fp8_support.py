"""What runs where, with reasons; pretending; caches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from harness import fp8
from harness.fp8 import support
from harness.fp8.errors import UnsupportedRecipeError
from tests.support.fp8 import batch, clean_fp8, counted, layers, one_region

__all__ = ["clean_fp8"]

TABLE = {
    #                          cpu          sm89           sm90         sm100       sm103       sm120
    "delayed_scaling": ("native", "native", "native", "native", "native", "native"),
    "float8_current_scaling": ("native", "native", "native", "native", "native", "native"),
    "float8_rowwise_scaling": ("native", "native", "native", "native", "native", "native"),
    "float8_block_scaling": ("native", "unsupported", "native", "emulated", "emulated", "emulated"),
    "mxfp8_block_scaling": ("emulated", "emulated", "emulated", "native", "native", "emulated"),
    "nvfp4_block_scaling": ("emulated", "emulated", "emulated", "native", "native", "native"),
}
ARCHES = ("cpu", "sm89", "sm90", "sm100", "sm103", "sm120")
CELLS = [(recipe, arch, level) for recipe, row in TABLE.items() for arch, level in zip(ARCHES, row, strict=True)]


@pytest.fixture(autouse=True)
def as_found() -> Iterator[None]:
    yield
    support.set_emulate(True)
    assert support.BELIEF.arch == ""


@pytest.mark.parametrize(("recipe", "arch", "level"), CELLS)
def test_the_table(recipe: str, arch: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "_cuda_version", lambda: (13, 0))
    found = support.level_of(recipe, arch, True)
    assert found.level == level
    assert bool(found.reason) == (level != "native")
    without = support.level_of(recipe, arch, False)
    assert without.level == ("native" if level == "native" else "unsupported")


@pytest.mark.parametrize(
    ("recipe", "arch", "cuda", "level"),
    [
        ("float8_current_scaling", "sm80", (13, 0), "unsupported"),
        ("mxfp8_block_scaling", "sm80", (13, 0), "unsupported"),
        ("float8_current_scaling", "sm89", (11, 8), "unsupported"),
        ("float8_block_scaling", "sm90", (12, 8), "unsupported"),
        ("float8_block_scaling", "sm90", (12, 9), "native"),
        ("mxfp8_block_scaling", "sm100", (12, 6), "emulated"),
    ],
)
def test_old_hardware_and_old_toolkits(
    recipe: str, arch: str, cuda: tuple[int, int], level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support, "_cuda_version", lambda: cuda)
    assert support.level_of(recipe, arch, True).level == level


def test_reasons_name_what_is_missing() -> None:
    with support.pretend("sm89"):
        supported, reason = fp8.check_fp8_block_scaling_support()
        assert not supported
        assert "9.0" in reason
        assert "8.9" in reason
    support.set_emulate(False)
    with support.pretend("sm90"):
        assert not fp8.check_mxfp8_support()[0]
        assert "10.0" in fp8.check_mxfp8_support()[1]
        assert not fp8.check_nvfp4_support()[0]
        assert fp8.check_fp8_support() == (True, "")


def test_checks_take_a_device() -> None:
    assert fp8.check_fp8_support("cpu") == (True, "")
    assert fp8.check_mxfp8_support("cpu")[0]
    support.set_emulate(False)
    assert not fp8.check_mxfp8_support("cpu")[0]


def test_no_cache_outlives_pretending() -> None:
    real = support.level_on("float8_block_scaling", "cpu").level
    with support.pretend("sm89"):
        assert support.level_on("float8_block_scaling", "cpu").level == "unsupported"
        with support.pretend("sm90"):
            assert support.level_on("float8_block_scaling", "cpu").level == "native"
        assert support.level_on("float8_block_scaling", "cpu").level == "unsupported"
    assert support.level_on("float8_block_scaling", "cpu").level == real
    assert support.architecture("cpu") == "cpu"


def test_pretending_ends_with_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), support.pretend("sm90"):
        raise ZeroDivisionError
    assert support.BELIEF.arch == ""


@pytest.mark.parametrize("arch", ["", "host", "sm", "sm9", "90", "gfx942"])
def test_pretending_to_be_nothing_known_is_refused(arch: str) -> None:
    with pytest.raises(ValueError, match="not an architecture"), support.pretend(arch):
        pass


@pytest.mark.usefixtures("clean_fp8")
def test_no_graph_outlives_a_change_of_belief() -> None:
    model, x = layers(1), batch()
    compiled, counter = counted(one_region(model))
    compiled(x, fp8.MXFP8BlockScaling())
    support.set_emulate(False)
    with pytest.raises(Exception, match="mxfp8_block_scaling is not supported on cpu") as caught:
        compiled(x, fp8.MXFP8BlockScaling())
    assert isinstance(caught.value.__cause__ or caught.value, (UnsupportedRecipeError, Exception))
    support.set_emulate(True)
    compiled(x, fp8.MXFP8BlockScaling())
    assert counter.frame_count == 1, "the first graph is still valid and was found again"


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.usefixtures("clean_fp8")
def test_an_unsupported_recipe_is_refused_under_compile_on_each_call(fullgraph: bool) -> None:
    compiled, _ = counted(one_region(layers(1)), fullgraph=fullgraph)
    with support.pretend("sm89"):
        for _ in range(3):
            with pytest.raises(Exception, match="float8_block_scaling is not supported on sm89"):
                compiled(batch(), fp8.Float8BlockScaling())
    assert fp8.FP8GlobalStateManager.quantization_state.autocast_depth == 0


def test_the_current_device_without_a_gpu_is_the_cpu() -> None:
    if not torch.cuda.is_available():
        assert support.current_device() == "cpu"
    with support.pretend("sm90"):
        assert support.current_device() == "cpu", "a pretended GPU is never queried"


@pytest.mark.parametrize(
    ("arch", "fp8_format", "level"),
    [
        ("sm90", "HYBRID", support.UNSUPPORTED),
        ("sm90", "E4M3", support.NATIVE),
        ("sm90", "", support.NATIVE),
        ("sm100", "HYBRID", support.EMULATED),
        ("cpu", "HYBRID", support.NATIVE),
    ],
)
def test_blocks_of_e5m2_have_no_kernel_on_hopper(arch: str, fp8_format: str, level: str) -> None:
    assert support.level_of("float8_block_scaling", arch, True, fp8_format).level == level
    assert support.level_of("float8_current_scaling", arch, True, "HYBRID").level == support.NATIVE


def test_a_region_of_blocks_with_e5m2_is_refused_on_hopper_before_anything_is_written() -> None:
    with support.pretend("sm90"):
        support.require(fp8.Float8BlockScaling(), "cpu")
        with pytest.raises(UnsupportedRecipeError, match="no product of e5m2"):
            support.require(fp8.Float8BlockScaling(fp8_format="HYBRID"), "cpu")
