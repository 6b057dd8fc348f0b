"""harness.judge.oracle_run: replays, and shares that add up and belong to the right product."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from harness.judge.bounds import FP32
from harness.judge.compare import norm
from harness.judge.numerics import judge_numerics
from harness.judge.oracle_engine import FPROP, ReplayEngine
from harness.judge.oracle_provider import OracleUnsupported
from harness.judge.oracle_run import OracleRun, aliases_of, foreign_layers, records_of_step, run_oracle
from harness.judge.oracle_steps import OUTPUT, At, forward, load_buffers
from harness.program import CaseContext, Expects, Program
from harness.types import NESTINGS, Spec
from tests.support.judge_stub import axes_for, observe


def ran(recipe: str | Spec = "float8_current_scaling", **axes: Any) -> OracleRun:
    obs = observe(axes_for(recipe, **axes))
    assert obs.eager is not None
    return run_oracle(obs, obs.eager, torch.bfloat16, FP32)


@pytest.mark.parametrize("nesting", NESTINGS)
def test_a_replay_with_nothing_removed_gives_the_run(nesting: str) -> None:
    run = ran(nesting=nesting)
    step = run.steps[-1]
    output, grads = run._replay(set())
    assert norm(output - step.output) <= 1e-12 * norm(step.output)
    assert grads.keys() == step.grads.keys()
    for name, grad in grads.items():
        assert norm(grad - step.grads[name]) <= 1e-12 * norm(step.grads[name]), name


@pytest.mark.parametrize("nesting", ["nested", "nested_disabled", "deep"])
def test_shares_of_the_products_add_up_to_the_whole(nesting: str) -> None:
    """Exactly so in a program that is linear in each error: removing errors one by one removes their sum."""
    run = ran(nesting=nesting)
    output, gradient = run.shares[OUTPUT], run.shares["input0"]
    assert norm(sum_of(output.direct) - output.whole.share) < 1e-3 * norm(output.whole.share)
    assert norm(sum_of(gradient.direct) - gradient.whole.share) < 1e-3 * norm(gradient.whole.share)
    for name, shares in run.shares.items():
        if name.endswith("weight"):
            assert shares.rest is not None
            assert torch.allclose(shares.direct[0].share + shares.rest.share, shares.whole.share, rtol=1e-12)


def sum_of(components: Any) -> torch.Tensor:
    return torch.stack([c.share for c in components]).sum(0)


def test_labels_name_layer_and_product_in_the_order_of_data_flow() -> None:
    run = ran(nesting="nested_disabled")
    assert [c.label for c in run.shares[OUTPUT].direct] == ["layers.0 fprop", "layers.2 fprop"]
    assert [c.label for c in run.shares["input0"].direct] == ["layers.2 dgrad", "layers.0 dgrad"]
    assert set(run.shares) == {OUTPUT, "input0", "layers.0.weight", "layers.2.weight"}  # layer 1 is not quantised


def test_the_last_products_share_is_its_own_error() -> None:
    run = ran(nesting="nested")
    last = [p for p in run.steps[-1].products if p.product == FPROP][-1]
    assert norm(run.shares[OUTPUT].direct[-1].share - last.error) < 1e-12 * norm(last.error)


def test_unquantised_is_the_program_without_quantisation() -> None:
    run = ran(nesting="flat")
    sites = run.steps[-1].sites
    bare = run.unquantised[OUTPUT]
    removed = {(s.index, FPROP) for s in sites}
    with torch.no_grad(), run.provider.replaying(ReplayEngine(run.provider.run, removed)):
        output = forward(run.program, run.batches[-1], frozenset(), At(0)).output
    assert norm(output - bare) < 1e-12 * norm(bare)
    assert 0.01 < norm(run.steps[-1].output - bare) / norm(bare) < 0.1


def test_nothing_quantised_has_no_shares() -> None:
    obs = observe(axes_for(nesting="sequential"))
    assert obs.eager is not None
    run = run_oracle(obs, obs.eager, torch.bfloat16, FP32)
    run.steps = (replace(run.steps[-1], sites=[]),)
    assert run.shares == {}


def test_a_weight_used_twice_has_one_component_per_use() -> None:
    axes = axes_for("mxfp8_block_scaling")
    obs = observe(axes, case=layer_twice)
    assert obs.eager is not None
    oracle = run_oracle(obs, obs.eager, torch.bfloat16, FP32)
    labels = [c.label for c in oracle.shares["layer.weight"].direct]
    assert labels == ["layer wgrad of use 1", "layer wgrad of use 2"]
    assert not oracle.steps[0].left_over
    assert all(not product.mismatches for product in oracle.steps[0].products)
    assert judge_numerics(obs, axes).findings == ()


def layer_twice(ctx: CaseContext) -> Program:
    """One layer, used twice with a relu in between."""
    model = torch.nn.Module()
    layer = ctx.provider.linear(64, 64, bias=True, dtype=ctx.dtype, device=ctx.device)
    model.add_module("layer", layer)

    def forward(recipes: tuple[Any, ...], x: torch.Tensor) -> torch.Tensor:
        with ctx.provider.autocast(enabled=True, recipe=recipes[0]):
            return layer(torch.relu(layer(x)))  # type: ignore[no-any-return]

    def inputs(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        return (torch.randn(64, 64, generator=generator).to(ctx.dtype).requires_grad_(),)

    recipe = ctx.axes.recipe
    return Program(model, forward, lambda: (ctx.provider.recipe(recipe),), inputs, Expects((recipe.label,) * 2))


def test_records_are_dealt_to_their_steps() -> None:
    obs = observe(axes_for(nesting="flat"))
    run = obs.eager
    assert run is not None
    assert len(records_of_step(run, 0)) == 6
    assert records_of_step(run, 1) == []
    untold = replace(run, steps_of_records=())
    assert len(records_of_step(untold, 0)) == 6
    assert records_of_step(untold, 1) == []


def test_other_parameters_than_the_providers_are_unsupported() -> None:
    obs = observe(axes_for())
    assert obs.eager is not None
    fewer = {name: p for name, p in obs.parameters.items() if name != "layers.0.bias"}
    with pytest.raises(OracleUnsupported, match="other parameters"):
        run_oracle(replace(obs, parameters=fewer), obs.eager, torch.bfloat16, FP32)


def test_tied_layers_are_known_by_one_name() -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.ReLU())
    assert aliases_of(model) == {"0": "0", "1": "1", "2": "2"}
    model[2].weight = model[0].weight
    assert aliases_of(model) == {"0": "0", "1": "1", "2": "0"}


def test_tied_layers_are_judged_and_an_untied_one_is_found() -> None:
    axes = axes_for("mxfp8_block_scaling")
    obs = observe(axes, case=tied)
    assert judge_numerics(obs, axes).findings == ()
    assert obs.eager is not None
    lost = replace(obs, eager=replace(obs.eager, layers={}))
    assert {finding.check for finding in judge_numerics(lost, axes).findings} >= {"numerics.tap"}


def tied(ctx: CaseContext) -> Program:
    """Two layers with one weight."""
    program = layer_twice(ctx)
    first, second = program.model.layer, ctx.provider.linear(64, 64, bias=False, dtype=ctx.dtype, device=ctx.device)
    second.weight = first.weight  # type: ignore[assignment, union-attr]
    program.model.add_module("second", second)

    def forward(recipes: tuple[Any, ...], x: torch.Tensor) -> torch.Tensor:
        with ctx.provider.autocast(enabled=True, recipe=recipes[0]):
            return second(torch.relu(first(x)))  # type: ignore[no-any-return, operator]

    return replace(program, forward=forward)


def test_fp8_of_layers_that_are_none_of_the_oracles_is_foreign() -> None:
    obs = observe(axes_for(nesting="flat"))
    assert obs.eager is not None
    run = run_oracle(obs, obs.eager, torch.bfloat16, FP32)
    assert foreign_layers(run, obs.eager) == ()
    pointers = list(obs.eager.layers)
    renamed = replace(obs.eager, layers={**obs.eager.layers, pointers[0]: "libraries.own"})
    assert foreign_layers(run, renamed) == ("libraries.own",)
    nameless = replace(obs.eager, layers={})
    assert foreign_layers(run, nameless) == ("one without a weight of its own",)


def test_a_users_program_that_fails_on_the_oracle_is_not_judged_and_a_case_is_a_defect() -> None:
    axes = axes_for(nesting="flat")
    obs = replace(observe(axes), rebuild=_fails)
    verdict = judge_numerics(obs, replace(axes, case="target", target="mine:build"))
    assert verdict.findings == ()
    assert "mine:build raised TypeError on the oracle: bfloat16 only" in verdict.notes[0]
    assert "numerics.codes" not in verdict.checks
    with pytest.raises(TypeError):
        judge_numerics(obs, axes)


def _fails(provider: Any) -> Program:
    raise TypeError("bfloat16 only")


def test_programs_that_draw_are_not_judged_by_the_oracle() -> None:
    axes = axes_for(nesting="flat")
    obs = observe(axes)
    assert "numerics.codes" in judge_numerics(obs, axes).checks
    verdict = judge_numerics(replace(obs, draws=True), axes)
    assert "draws random numbers" in verdict.notes[0]
    assert "numerics.codes" not in verdict.checks


def test_buffers_that_both_models_have_are_copied() -> None:
    model = torch.nn.Module()
    for name, value in {"same": torch.zeros(2), "longer": torch.zeros(3), "count": torch.zeros(2).long()}.items():
        model.register_buffer(name, value.double() if value.is_floating_point() else value)
    ones = torch.ones(2, dtype=torch.bfloat16)
    load_buffers(model, {"same": ones, "longer": ones, "count": ones, "other": ones})
    assert {name: float(buffer.sum()) for name, buffer in model.named_buffers()} == {"same": 2, "longer": 0, "count": 0}
