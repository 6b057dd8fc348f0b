"""harness.judge.calibrate_plan: what runs, and what can't, never in silence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.judge import calibrate_plan
from harness.judge.calibrate_measure import Job
from harness.judge.calibrate_plan import REFUSAL, Plan
from harness.judge.calibrate_records import Skipped
from harness.providers.protocol import ProviderUnavailable, Support
from harness.types import Evidence, Spec

CURRENT, BLOCK, MX = "float8_current_scaling", "float8_block_scaling", "mxfp8_block_scaling"
PLAN = Plan(
    "toy_linear", ("fake",), (CURRENT,), ("flat",), ("normal",), (5,), ((16, 32, 16),), ("float16",), ("none",), "cpu"
)


class Believing:
    def __init__(self, **levels: str) -> None:
        self.levels = levels

    def supports(self, recipe: Spec, arch: str) -> Support:
        level = self.levels.get(recipe.name, "native")
        return Support(level, f"{recipe.name} on {arch} is {level}")


def jobs(monkeypatch: pytest.MonkeyPatch, plan: Plan, **levels: str) -> tuple[list[Job], list[Skipped]]:
    monkeypatch.setattr(calibrate_plan, "provider_of", lambda name: Believing(**levels))
    return plan.jobs()


def test_every_combination_once_with_seeds_as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(PLAN, nestings=("flat", "deep"), data=("normal", "positive"), seeds=range(7, 10))
    made, skipped = jobs(monkeypatch, replace(plan, shapes=((16, 32, 16), (32, 64, 96)), dtypes=("float16", "float32")))
    assert len(made) == len(set(made)) == 2 * 2 * 3 * 2 * 2
    assert {job.axes.seed for job in made} == {7, 8, 9}
    assert {job.axes.shape for job in made} == {(16, 32, 16), (32, 64, 96)}
    assert skipped == []
    assert {(job.evidence, job.backend, job.axes.backend) for job in made} == {(Evidence.NATIVE, "none", "eager")}


def test_compiled_runs_have_their_backend_and_delayed_scaling_none(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(PLAN, recipes=("delayed_scaling", CURRENT), backends=("none", "inductor"))
    made, skipped = jobs(monkeypatch, plan, float8_current_scaling="emulated")
    assert [(job.axes.recipe.name, job.backend, job.evidence.value) for job in made] == [
        ("delayed_scaling", "none", "native"),
        (CURRENT, "none", "emulated"),
        (CURRENT, "inductor", "emulated"),
    ]
    assert skipped == [Skipped("fake", "delayed_scaling", "compiled runs, inductor", REFUSAL, 1)]


def test_what_is_not_supported_stands_there_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(PLAN, recipes=(CURRENT, MX), nestings=("flat", "nested"), seeds=range(3))
    made, skipped = jobs(monkeypatch, plan, mxfp8_block_scaling="unsupported", float8_block_scaling="unsupported")
    assert [(job.axes.recipe.name, job.axes.nesting) for job in made] == [(CURRENT, "flat")] * 3
    inner = f"inner recipe {BLOCK}: {BLOCK} on cpu is unsupported"
    assert skipped == [
        Skipped("fake", CURRENT, "eager runs", inner, 3),
        Skipped("fake", MX, "eager runs", f"{MX} on cpu is unsupported", 6),
    ]


def test_a_provider_that_cant_be_used_stands_there_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(name: str) -> Believing:
        if name == "fake":
            raise ProviderUnavailable("the library is not installed")
        return Believing()

    monkeypatch.setattr(calibrate_plan, "provider_of", unavailable)
    made, skipped = replace(PLAN, providers=("fake", "other"), seeds=range(2)).jobs()
    assert [job.axes.provider.name for job in made] == ["other", "other"]
    assert skipped == [Skipped("fake", "every recipe", "every run", "the library is not installed", 2)]
