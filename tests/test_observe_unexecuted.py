"""Negative cells must be refused and leave nothing; traced cells give graphs and execute nothing."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from harness.observe.types import CallSeen, Observations, ProductSeen
from harness.types import Axes, Evidence, Spec
from tests.support import fake_provider
from tests.support.fake_provider import SIZE, STATE, FakeProvider, Recipe, autocast
from tests.support.observing import REFUSAL, axes, broken_region, observe, with_layers

# ---- negative cells -------------------------------------------------------------------------------------------------


def _negative(provider: FakeProvider | None = None) -> Observations:
    return observe(axes("mxfp8_block_scaling"), provider=provider, level=Evidence.NEGATIVE, arch="sm90")


def test_negative_cell_is_refused_eagerly_and_compiled() -> None:
    obs = _negative()
    assert obs.compile_attempts == 4
    assert [error.phase for error in obs.errors] == ["enter"] * 5
    assert all(any("Unsupported" in names.split("<") for names, _ in error.chain) for error in obs.errors)
    assert all(any("needs a Blackwell GPU" in text for _, text in error.chain) for error in obs.errors)
    assert (obs.state_diffs, obs.notes, obs.eager, obs.census) == ((), (), None, None)
    assert fake_provider.State() == STATE


def test_negative_cell_that_is_accepted_under_compile() -> None:
    @contextlib.contextmanager
    def accepting(enabled: bool = True, recipe: Any = None) -> Iterator[None]:
        if enabled and not torch.compiler.is_compiling():
            fake_provider._check_support(recipe.label, STATE.arch)
        yield

    obs = _negative(FakeProvider(accepting))
    entered = [error for error in obs.errors if error.phase == "enter"]
    assert [error.type for error in entered] == ["Unsupported"] + ["NothingRaised"] * 4
    assert "torch.compile(fullgraph=False)" in entered[-1].message


def test_negative_cell_that_writes_before_it_checks() -> None:
    """NVIDIA/TransformerEngine 2.20 enters NVFP4 on sm_90 so: enabled stays True for the rest of the process."""

    @contextlib.contextmanager
    def writing(enabled: bool = True, recipe: Any = None) -> Iterator[None]:
        saved = STATE.enabled
        STATE.enabled = enabled
        if enabled:
            fake_provider._check_support(recipe.label, STATE.arch)
        yield
        STATE.enabled = saved

    obs = _negative(FakeProvider(writing))
    assert {(d.moment, d.key) for d in obs.state_diffs} >= {("after exception (enter)", "enabled")}


def test_negative_cell_whose_disabled_region_runs_fp8() -> None:
    @contextlib.contextmanager
    def always(enabled: bool = True, recipe: Any = None) -> Iterator[None]:
        with autocast(True, recipe or Recipe("other")):
            yield

    obs = _negative(FakeProvider(always))
    assert "3 FP8 products ran in the disabled region" in {error.message for error in obs.errors}


def test_negative_cell_where_nothing_is_supported_is_noted() -> None:
    class Nothing(FakeProvider):
        def supports(self, recipe: Spec, arch: str) -> Any:
            return dataclasses.replace(super().supports(recipe, arch), level="unsupported")

    assert any(note.startswith("no recipe is supported on") for note in _negative(Nothing()).notes)


def test_pretending_that_outlives_itself_is_named() -> None:
    class Sticky(FakeProvider):
        @contextlib.contextmanager
        def pretend(self, arch: str) -> Iterator[None]:
            STATE.arch = arch
            yield

    moments = {(d.moment, d.key) for d in _negative(Sticky()).state_diffs}
    assert ("after pretending to be another architecture", "arch") in moments


# ---- traced cells ---------------------------------------------------------------------------------------------------


def _traced(cell: Axes, **how: Any) -> tuple[Observations, int]:
    """Observations, and how many FP8 products executed meanwhile."""
    with FakeProvider().tap() as records:
        obs = observe(cell, level=Evidence.TRACED, arch="sm100", **how)
    return obs, len(records)


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_traced_cell_has_graphs_and_executes_nothing(backend: str, fullgraph: bool) -> None:
    obs, executed = _traced(axes(backend=backend, fullgraph=fullgraph))
    assert executed == 0
    assert (obs.errors, obs.state_diffs) == ((), ())
    assert obs.census is not None
    assert obs.census.calls == (CallSeen(captured=2, executed=0),) * 2
    assert (obs.census.graphs, obs.census.recompiles) == (1, ())
    assert obs.census.backward_graphs == (0 if backend == "eager" else 1)
    assert bool(obs.notes) == (backend == "inductor")
    assert (obs.eager, obs.compiled, obs.gemms) == (None, None, None)


def test_traced_cell_sees_a_break() -> None:
    obs, _ = _traced(axes(fullgraph=False), body=broken_region)
    assert obs.census is not None
    assert obs.census.eager_frames > 0
    assert obs.census.breaks


def test_traced_cell_under_fullgraph_reports_the_break_as_an_error() -> None:
    obs, _ = _traced(axes(), body=broken_region)
    assert [(error.phase, error.type) for error in obs.errors] == [("trace", "Unsupported")] * 2


@pytest.mark.parametrize("fullgraph", [True, False])
def test_traced_refusal(fullgraph: bool) -> None:
    obs, _ = _traced(axes("delayed_scaling", fullgraph=fullgraph), raises=REFUSAL)
    assert obs.compile_attempts == 3
    assert [error.phase for error in obs.errors] == ["compile"] * 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_traced_steps_show_which_operator_was_given_which_recipe(backend: str) -> None:
    """Once for each call that runs: neither Dynamo's tracing nor AOT's counts."""
    obs, _ = _traced(axes(backend=backend))
    forward = (ProductSeen("float8_current_scaling", "fprop", "forward"),) * 2
    assert [step.products for step in obs.traced] == [forward] * 2


def test_traced_steps_show_which_leaves_get_a_gradient() -> None:
    obs, _ = _traced(axes())
    shapes = dict.fromkeys(("output", "input0", "layers.0.weight", "layers.1.weight"), (SIZE, SIZE))
    assert [step.shapes for step in obs.traced] == [shapes] * 2
    without, _ = _traced(axes(), body=with_layers(lambda region, layers, x: layers[1](x.detach())))
    assert [set(step.shapes) for step in without.traced] == [{"output", "layers.1.weight"}] * 2


def test_a_provider_that_knows_no_products_by_their_operators() -> None:
    class Mute(FakeProvider):
        product_of = property()  # as absent

    obs, _ = _traced(axes(), provider=Mute())
    assert [step.products for step in obs.traced] == [None] * 2


def test_a_step_that_raised_is_no_traced_step() -> None:
    obs, _ = _traced(axes(), body=broken_region)
    assert obs.traced == ()
