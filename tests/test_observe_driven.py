"""Programs that surround their forward: driven steps, backward passes, updates, settings, probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from harness import torch_compat
from harness.judge.check import Judging
from harness.judge.verdict import run_checks
from harness.observe.types import Fact, Observations
from harness.probing import Probing
from harness.program import Expects, Program, Step, StepExpects
from harness.types import Axes, Cell, Evidence, Raises
from tests.support.fake_provider import STATE, FakeProvider, Recipe, autocast
from tests.support.observing import Region, axes, observe, with_layers

LABEL = "float8_current_scaling"
EAGER = axes(backend="eager")


def bare(region: Region, layers: torch.nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    """Two layers and no region: a drive opens it."""
    return layers[1](layers[0](x))  # type: ignore[no-any-return]


def driven(drive: Callable[[Step], torch.Tensor], **expects: Any) -> Callable[[Program], Program]:
    return lambda program: replace(program, drive=drive, expects=replace(program.expects, **expects))


def checks(cell: Axes, obs: Observations) -> set[str]:
    return {finding.check for finding in run_checks(Judging(Cell("cell", cell, None), obs))[0]}


def toggling(step: Step) -> torch.Tensor:
    """FP8 in even steps only."""
    if step.index % 2:
        return step.forward(step.recipes, *step.inputs)
    with autocast(enabled=True, recipe=step.recipes[0]):
        return step.forward(step.recipes, *step.inputs)


TOGGLED = {
    "schedule": (StepExpects((LABEL,) * 2), StepExpects(())),
    "fp8_linears": (),
    "steps": 3,
    "graphs": 2,
    "recompiles": 1,
}


def test_drive_surrounds_eager_and_compiled_steps_alike() -> None:
    obs = observe(EAGER, body=with_layers(bare), changes=driven(toggling, **TOGGLED))
    assert (obs.errors, obs.state_diffs) == ((), ())
    for run in (obs.eager, obs.compiled):
        assert run is not None
        assert run.steps_of_records == (0,) * 6 + (2,) * 6
    assert obs.census is not None
    assert (obs.census.graphs, len(obs.census.recompiles), obs.census.steady_compiles) == (2, 1, 0)
    assert [call.executed for call in obs.census.calls] == [2, 0, 2, *[2, 0] * 5]  # the profiled step is 3: no FP8
    assert checks(EAGER, obs) == set()


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        ({"graphs": 1}, "compile.graphs"),
        ({"recompiles": 0}, "compile.recompiles"),
        ({"schedule": (StepExpects((LABEL,) * 2),)}, "fp8.recipe_seen"),
        ({"schedule": (StepExpects((LABEL,) * 2), StepExpects((), wgrad=(LABEL,)))}, "fp8.gemms"),
        ({"compiled_schedule": (StepExpects((LABEL,) * 2, dgrad=()),)}, "fp8.recipe_seen"),
    ],
)
def test_a_schedule_that_the_steps_do_not_keep_is_red(wrong: dict[str, Any], check: str) -> None:
    obs = observe(EAGER, body=with_layers(bare), changes=driven(toggling, **{**TOGGLED, **wrong}))
    assert check in checks(EAGER, obs)


def test_a_setting_first_met_in_the_steady_calls_compiles_there() -> None:
    def late(step: Step) -> torch.Tensor:
        return toggling(replace(step, index=step.index // 2))  # the first step without FP8 is the first steady one

    obs = observe(EAGER, body=with_layers(bare), changes=driven(late, **{**TOGGLED, "steps": 1}))
    assert "compile.steady" in checks(EAGER, obs)


def test_state_is_compared_where_the_drive_asks() -> None:
    def drive(step: Step) -> torch.Tensor:
        step.unchanged("before the region")
        with autocast(enabled=True, recipe=step.recipes[0]):
            step.unchanged("inside the region")
            return step.forward(step.recipes, *step.inputs)

    obs = observe(EAGER, body=with_layers(bare), changes=driven(drive))
    assert {(diff.moment, diff.key) for diff in obs.state_diffs if "step 0" in diff.moment} == {
        (f"inside the region, {how} step 0", key)
        for how in ("eager", "compiled")
        for key in ("enabled", "recipe", "depth")
    }


def test_a_step_knows_its_run_and_can_reset_the_provider() -> None:
    seen: list[tuple[bool, str]] = []

    def drive(step: Step) -> torch.Tensor:
        assert step.provider is not None
        seen.append((step.compiled, step.provider.name))
        STATE.counter = 7
        step.reset()
        assert STATE.counter == 0
        return step.forward(step.recipes, *step.inputs)

    obs = observe(EAGER, changes=driven(drive))
    assert obs.errors == ()
    assert set(seen) == {(False, "fake"), (True, "fake")}


def test_an_exception_of_the_drive_is_the_cells() -> None:
    def drive(step: Step) -> torch.Tensor:
        raise ValueError("the drive gave up")

    obs = observe(EAGER, changes=driven(drive))
    assert {(error.type, error.phase) for error in obs.errors} >= {("ValueError", "eager"), ("ValueError", "compile")}


def test_backward_passes_add_up() -> None:
    def twice(step: Step, backward: Callable[[], None]) -> None:
        backward()
        backward()

    once = observe(EAGER)
    double = observe(EAGER, changes=lambda program: replace(program, around_backward=twice, passes=2))
    assert once.compiled is not None
    assert double.compiled is not None
    for name, grad in once.compiled.steps[0].grads.items():
        assert torch.equal(double.compiled.steps[0].grads[name], grad * 2)
    assert len(double.compiled.records) == 2 + 2 * 4


def test_update_changes_the_weights_from_step_to_step() -> None:
    def update(model: torch.nn.Module) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 1

    obs = observe(EAGER, steps=2, changes=lambda program: replace(program, update=update))
    assert obs.eager is not None
    assert obs.compiled is not None
    for run in (obs.eager, obs.compiled):
        first, second = (step.weights for step in run.steps)
        for name, start in obs.parameters.items():
            assert torch.equal(first[name], start + 1)
            assert torch.equal(second[name], first[name] + 1)
    for call in obs.later:  # the eager step beside a later call has made every step before it
        assert torch.equal(call.compiled.output, call.eager.output)


def test_inputs_may_differ_from_step_to_step_and_stay_exact() -> None:
    def inputs_at(generator: torch.Generator, index: int) -> tuple[torch.Tensor, ...]:
        return (torch.full((16, 16), float(index + 1), dtype=torch.bfloat16, requires_grad=True),)

    obs = observe(EAGER, steps=3, changes=lambda p: replace(p, inputs_at=inputs_at, exact_inputs=True))
    assert [batch.inputs[0].unique().tolist() for batch in obs.batches] == [[1.0], [2.0], [3.0]]
    varied = observe(EAGER, steps=3, changes=lambda p: replace(p, inputs_at=inputs_at))
    assert [batch.inputs[0].unique().tolist() for batch in varied.batches] == [[1.0], [16.0], [0.375]]


def test_settings_hold_while_the_program_is_compiled_and_run() -> None:
    seen: list[Any] = []

    def drive(step: Step) -> torch.Tensor:
        seen.append((step.compiled, torch_compat.compile_config()["dynamo.specialize_float"]))
        return step.forward(step.recipes, *step.inputs)

    default = torch_compat.compile_config()["dynamo.specialize_float"]
    wanted = not default
    settings = {"dynamo.specialize_float": wanted}
    obs = observe(EAGER, changes=lambda p: replace(driven(drive)(p), settings=settings))
    assert obs.census is not None
    assert obs.census.config["dynamo.specialize_float"] is wanted
    assert {setting for compiled, setting in seen if compiled} == {wanted}
    assert torch_compat.compile_config()["dynamo.specialize_float"] is default
    assert obs.state_diffs == ()


def test_probes_state_facts_and_leave_no_state() -> None:
    def probes(probing: Probing) -> None:
        probing.fact("architecture", "cpu", probing.arch)
        with probing.part("after a leak"):
            STATE.depth = 3

    obs = observe(EAGER, changes=lambda program: replace(program, probes=probes))
    assert obs.facts == (Fact("architecture", "cpu", "cpu"),)
    assert ("after a leak", "depth", "0", "3") in {(d.moment, d.key, d.before, d.after) for d in obs.state_diffs}


def test_an_exception_of_a_probe_keeps_what_was_stated() -> None:
    def probes(probing: Probing) -> None:
        probing.fact("one", 1, 1)
        raise ValueError("no second fact")

    obs = observe(EAGER, changes=lambda program: replace(program, probes=probes))
    assert obs.facts == (Fact("one", "1", "1"),)
    assert [(error.phase, error.message) for error in obs.errors] == [("probe", "no second fact")]


@pytest.mark.parametrize(
    ("level", "arch", "cell"),
    [
        (Evidence.TRACED, "sm100", axes(arch="sm100")),
        (Evidence.NEGATIVE, "sm90", axes("mxfp8_block_scaling", arch="sm90")),
    ],
)
def test_probes_run_on_the_levels_that_they_name(level: Evidence, arch: str, cell: Axes) -> None:
    def probes(probing: Probing) -> None:
        probing.fact("level", level.value, probing.evidence.value)

    without = observe(cell, level=level, arch=arch, changes=lambda p: replace(p, probes=probes))
    assert without.facts is None
    named = observe(cell, level=level, arch=arch, changes=lambda p: replace(p, probes=probes, probe_levels=(level,)))
    assert named.facts == (Fact("level", level.value, level.value),)


def test_a_traced_program_makes_the_steps_of_its_schedule() -> None:
    cell = axes(arch="sm100", backend="eager")
    forwards = tuple(replace(step, dgrad=(), wgrad=()) for step in TOGGLED["schedule"])  # its backward has no operator
    change = driven(toggling, **{**TOGGLED, "schedule": forwards})
    obs = observe(cell, body=with_layers(bare), level=Evidence.TRACED, arch="sm100", changes=change)
    assert obs.census is not None
    assert [call.captured for call in obs.census.calls] == [2, 0, 2]
    assert checks(cell, obs) == set()


def test_a_documented_refusal_is_met_through_the_drive() -> None:
    """The region is opened around the compiled module, and each compiled call enters it."""

    def drive(step: Step) -> torch.Tensor:
        with autocast(enabled=True, recipe=Recipe("plain")):
            return step.forward(step.recipes, *step.inputs)

    obs = observe(axes("delayed_scaling", backend="eager"), changes=driven(drive), provider=FakeProvider())
    assert {error.type for error in obs.errors} == {"InternalTorchDynamoError"}


@pytest.mark.parametrize(("level", "arch"), [(Evidence.NATIVE, "cpu"), (Evidence.TRACED, "sm100")])
def test_a_refusal_is_asked_of_the_first_setting_alone(level: Evidence, arch: str) -> None:
    """A later step may have another setting, which compiles: each call that must be refused is a first step."""

    def drive(step: Step) -> torch.Tensor:
        others = tuple(Recipe("plain") for _ in step.recipes)
        return step.forward(others if step.index % 2 else step.recipes, *step.inputs)

    cell = axes("delayed_scaling", arch=arch, backend="eager")
    raises = Raises("RuntimeError", "not supported under torch.compile")
    obs = observe(cell, level=level, arch=arch, changes=driven(drive, raises=raises, steps=2))
    assert [error.phase for error in obs.errors] == ["compile"] * 3
    assert "error.refusal" not in checks(cell, obs)


def test_steps_default_to_the_constant_program() -> None:
    expects = Expects(("a", "b"))
    step = expects.step(5, compiled=True)
    assert (step.fprop, step.of("dgrad"), step.of("wgrad"), step.recompute) == (("a", "b"), ("b", "a"), ("b", "a"), ())
    assert len(step.products) == 6
    twice = Expects(schedule=(StepExpects(("a",)), StepExpects((), dgrad=("b",))), compiled_schedule=(StepExpects(()),))
    assert (twice.step(2).fprop, twice.step(3).products, twice.step(0, compiled=True).products) == (("a",), ("b",), ())
