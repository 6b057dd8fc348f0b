"""The profiled step sees the FP8 GEMMs of a step, in silence; recipes are listed by phase and product."""

from __future__ import annotations

import sys
import threading

import pytest
import torch

from harness.observe.evidence import profile_step, recipes_seen
from tests.support.fake_provider import STATE, FakeLinear, FakeProvider, Recipe, autocast


@pytest.fixture(autouse=True)
def clean() -> None:
    FakeProvider().reset()


def _step(recipe: str = "r") -> None:
    layer = FakeLinear(16, 16, torch.bfloat16, torch.device("cpu"))
    torch.nn.init.eye_(layer.weight)
    x = torch.ones(16, 16, dtype=torch.bfloat16, requires_grad=True)
    with autocast(recipe=Recipe(recipe)):
        y = layer(layer(x))
    y.sum().backward()


def test_profile_shows_six_fp8_gemms_of_two_layers() -> None:
    gemms = FakeProvider().gemms(profile_step(_step))
    assert len(gemms) == 6
    assert all(name.endswith("Float8_e4m3fn") for gemm in gemms for name in (gemm.a_dtype, gemm.b_dtype))


def test_profile_of_a_high_precision_step_shows_none() -> None:
    def step() -> None:
        with autocast(enabled=False):
            FakeLinear(16, 16, torch.bfloat16, torch.device("cpu"))(torch.ones(16, 16, dtype=torch.bfloat16))

    assert FakeProvider().gemms(profile_step(step)) == []


@pytest.mark.parametrize(("all_threads", "gemms"), [(True, 6), (False, 0)])
def test_what_other_threads_run_is_seen_on_request(all_threads: bool, gemms: int) -> None:
    def step() -> None:
        thread = threading.Thread(target=_step)
        thread.start()
        thread.join()

    assert len(FakeProvider().gemms(profile_step(step, all_threads=all_threads))) == gemms


def test_profile_writes_nothing_and_keeps_what_others_write(capfd: pytest.CaptureFixture[str]) -> None:
    """torch 2.13 and 2.14 print USDT lines on descriptor 2 when a profiler starts and stops."""

    def step() -> None:
        _step()
        print("mine", file=sys.stderr)

    profile_step(step)
    assert capfd.readouterr() == ("", "mine\n")


def test_profiler_ends_when_the_step_raises() -> None:
    def step() -> None:
        raise ValueError("product")

    with pytest.raises(ValueError, match="product"):
        profile_step(step)
    assert len(FakeProvider().gemms(profile_step(_step))) == 6  # another can start


def test_profile_works_without_a_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert len(FakeProvider().gemms(profile_step(_step))) == 6


def test_recipes_seen_in_order_by_phase_and_product() -> None:
    with FakeProvider().tap() as records:
        _step("outer")
        _step("inner")
    assert recipes_seen(records) == {
        "forward.fprop": ("outer", "outer", "inner", "inner"),
        "backward.dgrad": ("outer", "outer", "inner", "inner"),
        "backward.wgrad": ("outer", "outer", "inner", "inner"),
    }
    assert recipes_seen([]) == {}


def test_recompute_is_a_phase_of_its_own() -> None:
    layer = FakeLinear(16, 16, torch.bfloat16, torch.device("cpu"))
    torch.nn.init.eye_(layer.weight)
    x = torch.ones(16, 16, dtype=torch.bfloat16, requires_grad=True)
    STATE.enabled, STATE.recipe = True, Recipe("r")  # stays open, so that the recompute is in FP8 too
    with FakeProvider().tap() as records:
        torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
    FakeProvider().reset()
    assert recipes_seen(records)["recompute.fprop"] == ("r",)
