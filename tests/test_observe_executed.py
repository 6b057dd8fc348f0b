"""Cells that execute: everything is there, and each defect of a program or provider shows where it should."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from harness.observe import evidence
from harness.observe.executed import rounds_at_random
from harness.observe.types import CallSeen, RunSeen
from harness.program import Program
from harness.types import Axes, Raises, Spec
from tests.support import fake_provider
from tests.support.fake_provider import STATE, FakeProvider, NoCompile, Recipe, autocast, flat
from tests.support.observing import REFUSAL, Region, axes, broken_region, observe, with_layers


def _equal(left: RunSeen | None, right: RunSeen | None) -> bool:
    assert left is not None
    assert right is not None
    return all(
        torch.equal(a.output, b.output) and all(torch.equal(a.grads[name], b.grads[name]) for name in a.grads)
        for a, b in zip(left.steps, right.steps, strict=True)
    )


# ---- executed cells -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cell",
    [
        axes(backend="eager"),
        axes(backend="aot_eager"),
        axes(backend="aot_eager", fullgraph=False),
        axes(backend="aot_eager", dynamic=True),
    ],
    ids=lambda cell: f"{cell.backend}-{cell.fullgraph}-{cell.dynamic}",
)
def test_good_cell_is_observed_in_full(cell: Axes) -> None:
    obs = observe(cell)
    assert (obs.errors, obs.state_diffs, obs.notes) == ((), (), ())
    assert _equal(obs.eager, obs.eager_again)
    assert _equal(obs.eager, obs.compiled)
    census = obs.census
    assert census is not None
    assert (census.graphs, census.recompiles, census.steady_compiles, census.breaks) == (1, (), 0, ())
    assert census.backward_graphs == (0 if cell.backend == "eager" else 1)
    assert census.calls == (CallSeen(2, 2),) * 11
    assert obs.gemms is not None
    assert len(obs.gemms) == 6
    assert obs.state_keys == 7
    assert (obs.state_moves or 0) > 0
    assert set(obs.timing) == {"eager_s", "compile_s", "profile_s", "steady_ms"}
    assert obs.compile_attempts == 0
    for run in (obs.eager, obs.compiled):
        assert run is not None
        assert {run.layers[record.weight_ptr] for record in run.records} == {"layers.0", "layers.1"}


def test_each_run_has_its_own_storage() -> None:
    obs = observe(axes())
    runs = [run for run in (obs.eager, obs.eager_again, obs.compiled) if run is not None]
    tensors = [t for run in runs for step in run.steps for t in (step.output, *step.grads.values())]
    tensors += [t for batch in obs.batches for t in (*batch.inputs, batch.grad_output)]
    tensors += obs.parameters.values()
    assert len(tensors) == 3 * 4 + 2 + 2
    assert len({t.untyped_storage().data_ptr() for t in tensors}) == len(tensors)


def test_several_steps() -> None:
    obs = observe(axes(), steps=3)
    assert len(obs.batches) == 3
    for run in (obs.eager, obs.eager_again, obs.compiled):
        assert run is not None
        assert len(run.steps) == 3
        assert run.steps_of_records == (0,) * 6 + (1,) * 6 + (2,) * 6
        assert set(run.layers.values()) == {"layers.0", "layers.1"}
    assert obs.census is not None
    assert len(obs.census.calls) == 13


def test_rebuild_makes_the_same_program_on_another_provider() -> None:
    obs = observe(axes())
    assert obs.rebuild is not None
    program = obs.rebuild(FakeProvider())
    for name, parameter in program.model.named_parameters():
        assert torch.equal(parameter, obs.parameters[name])
    (batch,) = obs.batches
    assert obs.eager is not None
    output = program.forward(program.recipes(), *batch.inputs)
    assert torch.equal(output, obs.eager.steps[0].output)


# ---- defects of a program -------------------------------------------------------------------------------------------


def test_break_in_the_region_is_green_by_numerics_and_red_by_the_census() -> None:
    obs = observe(axes(fullgraph=False), body=broken_region)
    assert obs.errors == ()
    assert _equal(obs.eager, obs.compiled)
    assert obs.census is not None
    assert obs.census.counter_breaks == 0
    assert obs.census.eager_frames > 0
    assert obs.census.breaks[0].site.startswith("tests/support/observing.py:")


def test_break_in_the_region_under_fullgraph_is_an_error_of_the_compile_phase() -> None:
    obs = observe(axes(), body=broken_region)
    (error,) = obs.errors
    assert (error.phase, error.type) == ("compile", "Unsupported")
    assert error.site.startswith("tests/support/observing.py:")
    assert (obs.compiled, obs.gemms) == (None, None)
    assert obs.eager is not None
    assert obs.census is not None
    assert obs.census.calls == ()
    assert obs.state_diffs == ()


def test_counter_in_python_state_compiles_in_steady_calls() -> None:
    def counting(region: Region, layers: torch.nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        STATE.counter += 1
        with region():
            return layers[1](layers[0](x))  # type: ignore[no-any-return]

    obs = observe(axes(backend="eager", fullgraph=False), body=with_layers(counting))
    assert obs.census is not None
    assert obs.census.steady_compiles > 0
    assert CallSeen(0, 2) in obs.census.calls or obs.census.recompile_limit_hits == 0
    assert "counter" in {item.key for item in obs.state_diffs}


def test_high_precision_in_place_of_fp8_shows_no_gemms_and_no_records() -> None:
    def disabled(region: Region, layers: torch.nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        return layers[1](layers[0](x))  # type: ignore[no-any-return]

    obs = observe(axes(), body=with_layers(disabled))
    assert obs.gemms == ()
    assert obs.eager is not None
    assert obs.eager.records == ()
    assert obs.census is not None
    assert obs.census.calls[0] == CallSeen(0, 0)


def test_exception_in_forward() -> None:
    def failing(region: Region, layers: torch.nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        with region():
            raise ValueError("product")

    obs = observe(axes(fullgraph=False), body=with_layers(failing))
    assert [(error.phase, error.type) for error in obs.errors] == [
        ("eager", "ValueError"),
        ("eager", "ValueError"),
        ("compile", "ValueError"),
    ]
    assert (obs.eager, obs.eager_again, obs.compiled, obs.batches) == (None, None, None, ())
    assert obs.state_diffs == ()


class _FailingBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        raise ValueError("product")


def test_exception_in_backward_has_its_own_phase() -> None:
    def failing(region: Region, layers: torch.nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        with region():
            return _FailingBackward.apply(layers[0](x))  # type: ignore[no-any-return]

    obs = observe(axes(backend="eager", fullgraph=False), body=with_layers(failing))
    assert {error.phase for error in obs.errors[:2]} == {"backward"}


def test_exception_in_a_later_call_is_of_the_run_phase() -> None:
    calls = [0]

    @torch.compiler.disable
    def counted(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        if calls[0] == 6:  # two eager runs, the first call, the profiled step, one steady call before
            raise ValueError("late")
        return x

    def failing(region: Region, layers: torch.nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        return counted(x) * 2

    obs = observe(axes(backend="eager", fullgraph=False), body=with_layers(failing))
    (error,) = obs.errors
    assert (error.phase, error.message) == ("run", "late")
    assert obs.compiled is not None
    assert obs.gemms is not None
    assert obs.census is not None
    assert len(obs.census.calls) == 2


def test_exception_while_building_again() -> None:
    builds = [0]

    def body(region: Region, layers: torch.nn.ModuleList) -> Callable[..., torch.Tensor]:
        builds[0] += 1
        if builds[0] > 1:
            raise ValueError("only once")
        return flat(region, layers)

    obs = observe(axes(backend="eager"), body=body)
    assert [(error.phase, error.message) for error in obs.errors] == [("build", "only once")] * 2
    assert obs.eager is not None
    assert (obs.eager_again, obs.compiled, obs.census) == (None, None, None)


# ---- the profiler belongs to the cell -------------------------------------------------------------------------------


def test_exception_in_the_profiled_step_ends_that_part() -> None:
    class Blind(FakeProvider):
        def gemms(self, profile: torch.profiler.profile) -> Any:
            raise LookupError("unknown kernel")

    obs = observe(axes(backend="eager"), provider=Blind())
    (error,) = obs.errors
    assert (error.phase, error.type) == ("run", "LookupError")
    assert obs.gemms is None
    assert obs.census is not None
    assert len(obs.census.calls) == 1
    assert evidence.recipes_seen(obs.compiled.records if obs.compiled else ())


# ---- state ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def leaky(enabled: bool = True, recipe: Any = None) -> Iterator[None]:
    """Restores nothing."""
    STATE.enabled, STATE.recipe = enabled, recipe
    yield


@contextlib.contextmanager
def leaky_on_error(enabled: bool = True, recipe: Any = None) -> Iterator[None]:
    """Restores, but not after an exception."""
    saved = (STATE.enabled, STATE.recipe)
    STATE.enabled, STATE.recipe = enabled, recipe
    yield
    STATE.enabled, STATE.recipe = saved


def test_state_left_by_an_exit_is_named_with_its_moment() -> None:
    obs = observe(axes(backend="eager", fullgraph=False), provider=FakeProvider(leaky))
    assert ("after eager", "enabled", "True") in {(d.moment, d.key, d.after) for d in obs.state_diffs}
    assert "after reset" not in {d.moment for d in obs.state_diffs}
    assert fake_provider.State() == STATE  # and the next cell starts clean


def test_state_left_by_an_exception_is_named() -> None:
    def failing(region: Region, layers: torch.nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        with region():
            raise ValueError("product")

    body = with_layers(failing)
    obs = observe(axes(backend="eager", fullgraph=False), provider=FakeProvider(leaky_on_error), body=body)
    assert ("after exception (eager)", "enabled") in {(d.moment, d.key) for d in obs.state_diffs}
    good = observe(axes(backend="eager", fullgraph=False), body=body)
    assert good.state_diffs == ()


def test_torch_state_left_open_is_named() -> None:
    def leaking(region: Region, layers: torch.nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        with region():
            torch.autocast_increment_nesting()
            return layers[0](x)  # type: ignore[no-any-return]

    obs = observe(axes(backend="eager", fullgraph=False), body=with_layers(leaking))
    assert ("after eager", "torch.autocast.nesting", "0", "1") in {
        (d.moment, d.key, d.before, d.after) for d in obs.state_diffs
    }
    while torch.autocast_decrement_nesting() > 0:
        pass


def dropping(region: Region, layers: torch.nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    with region():
        return torch.nn.functional.dropout(layers[0](x), 0.5)


def drawing(program: Program) -> Program:
    return replace(program, expects=replace(program.expects, draws=True))


def test_program_with_dropout_that_says_so_may_move_the_generators() -> None:
    obs = observe(axes(backend="eager"), body=with_layers(dropping), changes=drawing)
    assert obs.state_diffs == ()
    assert obs.notes == ("the program draws random numbers: generator states are not compared",)
    assert _equal(obs.eager, obs.eager_again)


def test_generators_moved_by_a_program_that_says_nothing_are_a_difference() -> None:
    obs = observe(axes(backend="eager"), body=with_layers(dropping))
    moments = {d.moment for d in obs.state_diffs if d.key == "torch.rng.cpu"}
    assert {"after eager", "after eager again", "after compile", "after the steady calls"} <= moments
    assert obs.notes == ()


@pytest.mark.parametrize("seed", [0, 5])  # 5 is the cell's own
def test_generators_that_are_seeded_anew_are_a_difference(seed: int) -> None:
    def seeding(region: Region, layers: torch.nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            torch.manual_seed(seed)
        with region():
            return layers[0](x)  # type: ignore[no-any-return]

    obs = observe(axes(backend="eager", seed=5), body=with_layers(seeding))
    assert ("after eager", "torch.rng.cpu") in {(d.moment, d.key) for d in obs.state_diffs}


def test_a_recipe_that_rounds_at_random_may_draw() -> None:
    asked = Spec("nvfp4_block_scaling", (("disable_stochastic_rounding", False),))
    switched_off = Spec("nvfp4_block_scaling", (("disable_stochastic_rounding", True),))
    assert rounds_at_random(asked)
    assert not rounds_at_random(switched_off)
    assert not rounds_at_random(Spec("nvfp4_block_scaling"))


def test_generators_moved_under_compile_only_are_a_difference() -> None:
    def moving(region: Region, layers: torch.nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            x = x + torch.rand(())
        with region():
            return layers[0](x)  # type: ignore[no-any-return]

    obs = observe(axes(backend="eager"), body=with_layers(moving))
    assert ("after compile", "torch.rng.cpu") in {(d.moment, d.key) for d in obs.state_diffs}


# ---- documented refusals --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def plain_refusal(enabled: bool = True, recipe: Any = None) -> Iterator[None]:
    """Refuses by a plain raise: without fullgraph Dynamo falls back to eager and nothing is refused."""
    if torch.compiler.is_compiling():
        raise NoCompile("delayed scaling is not supported under torch.compile")
    with autocast(enabled, Recipe("other")):
        yield


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("source", ["matrix", "case"])
def test_refusal_is_met_on_each_call(fullgraph: bool, source: str) -> None:
    by_matrix, by_case = (REFUSAL, None) if source == "matrix" else (None, REFUSAL)
    obs = observe(axes("delayed_scaling", fullgraph=fullgraph), raises=by_matrix, case_raises=by_case)
    assert obs.compile_attempts == 3
    assert [error.phase for error in obs.errors] == ["compile"] * 3
    assert all("NoCompile" in names for error in obs.errors for names in [" ".join(n for n, _ in error.chain)])
    assert (obs.state_diffs, obs.notes, obs.compiled, obs.gemms) == ((), (), None, None)
    assert _equal(obs.eager, obs.eager_again)


def test_refusal_by_a_plain_raise_is_silent_without_fullgraph() -> None:
    obs = observe(axes("delayed_scaling", fullgraph=False), provider=FakeProvider(plain_refusal), raises=REFUSAL)
    assert obs.errors == ()
    assert obs.compile_attempts == 3
    assert obs.notes == tuple(f"compiled call {i} of 3 was not refused" for i in (1, 2, 3))


def test_undocumented_refusal_is_an_error() -> None:
    obs = observe(axes("delayed_scaling"))
    (error,) = obs.errors
    assert error.phase == "compile"
    assert obs.compile_attempts == 0


def test_refusal_that_poisons_later_regions_is_an_eager_error() -> None:
    refused = [False]

    @torch.compiler.assume_constant_result
    def refuse() -> None:
        refused[0] = True
        raise NoCompile("delayed scaling is not supported under torch.compile")

    @contextlib.contextmanager
    def poisoning(enabled: bool = True, recipe: Any = None) -> Iterator[None]:
        if torch.compiler.is_compiling():
            refuse()
        if refused[0]:
            raise RuntimeError("unusable")
        with autocast(enabled, Recipe("other")):
            yield

    obs = observe(axes("delayed_scaling"), provider=FakeProvider(poisoning), raises=REFUSAL)
    # Once in the region that follows the refusals, once in the one that an exception is to leave.
    assert [error.phase for error in obs.errors] == ["compile"] * 3 + ["eager"] * 2
    assert {error.message for error in obs.errors[3:]} == {"unusable"}


def test_refusal_at_entry_is_looked_for_eagerly() -> None:
    @contextlib.contextmanager
    def refusing(enabled: bool = True, recipe: Any = None) -> Iterator[None]:
        raise ValueError("no such device")
        yield

    obs = observe(axes(), provider=FakeProvider(refusing), raises=Raises("ValueError", "device", "enter"))
    assert [error.phase for error in obs.errors] == ["enter", "enter"]
    assert obs.census is None


def test_a_snapshot_that_can_not_tell_a_region_from_none_is_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.observe.recorder.provider_state", lambda provider: {"depth": 0})
    assert observe(axes(backend="eager")).state_moves == 0
