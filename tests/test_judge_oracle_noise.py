"""harness.judge.oracle_noise: operations that amplify rounding turn no good run red and hide no fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from harness.data import draw
from harness.judge.bounds import FP32, admissible_difference
from harness.judge.formats import precision_of
from harness.judge.numerics import judge_numerics
from harness.judge.numerics_bench import Bench
from harness.judge.oracle_noise import Noise
from harness.judge.oracle_run import noises_of
from harness.program import CaseContext, Expects, Program
from harness.types import DATA_KINDS
from tests.support import judge_faults as faults
from tests.support.judge_stub import StubProvider, axes_for, observe

Mix = Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]


def case(mix: Mix) -> Callable[[CaseContext], Program]:
    """A program with three linears (up, down, last) and a norm, put together by ``mix``."""

    def build(ctx: CaseContext) -> Program:
        model = torch.nn.Module()
        model.norm = torch.nn.LayerNorm(128, dtype=ctx.dtype)
        for name, k, n in (("up", 128, 256), ("down", 256, 128), ("last", 128, 128)):
            model.add_module(name, ctx.provider.linear(k, n, bias=True, dtype=ctx.dtype, device=ctx.device))

        def forward(recipes: tuple[Any, ...], x: torch.Tensor) -> torch.Tensor:
            with ctx.provider.autocast(enabled=True, recipe=recipes[0]):
                return mix(model, x)

        def inputs(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
            return (draw(ctx.axes.data, (128, 128), generator, ctx.dtype, ctx.device).requires_grad_(),)

        recipe = ctx.axes.recipe
        return Program(model, forward, lambda: (ctx.provider.recipe(recipe),), inputs, Expects((recipe.label,) * 3))

    return build


def chain(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m.last(m.down(m.up(x)))  # type: ignore[no-any-return]


def block(m: Any, x: torch.Tensor) -> torch.Tensor:
    x = x + m.down(torch.nn.functional.gelu(m.up(m.norm(x))))
    return x + m.last(m.norm(x))  # type: ignore[no-any-return]


def attention(m: Any, x: torch.Tensor) -> torch.Tensor:
    x = x + m.down(torch.nn.functional.gelu(m.up(m.norm(x))))
    q = m.last(m.norm(x)).reshape(8, 16, 128)
    keys = m.norm(x).reshape(8, 16, 128)
    weights = torch.softmax(q @ keys.transpose(1, 2) / 11.3, -1)
    return x + (weights @ q).reshape(128, 128)  # type: ignore[no-any-return]


@pytest.mark.parametrize("data", DATA_KINDS)
@pytest.mark.parametrize("mix", [block, attention])
@pytest.mark.parametrize("recipe", ["float8_current_scaling", "mxfp8_block_scaling", "nvfp4_block_scaling"])
def test_good_programs_with_norms_and_softmax_pass(recipe: str, mix: Mix, data: str) -> None:
    cell = axes_for(recipe, data=data)
    verdict = judge_numerics(observe(cell, StubProvider(), StubProvider(), case(mix)), cell)
    assert verdict.findings == ()


@pytest.mark.parametrize("mix", [block, attention])
@pytest.mark.parametrize(
    ("fault", "checks"),
    [
        (faults.OneLayerInBf16, {"numerics.tap", "numerics.program", "numerics.alpha"}),
        (faults.PlanOnly, {"numerics.tap", "numerics.alpha"}),
        (faults.RoundTowardZero, {"numerics.codes", "numerics.alpha"}),
        (faults.GradientTwice, {"numerics.program", "numerics.alpha"}),
        (faults.BiasLost, {"numerics.tap", "numerics.program"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_faults_in_them_are_still_caught(mix: Mix, fault: type[StubProvider], checks: set[str]) -> None:
    cell = axes_for("mxfp8_block_scaling")
    verdict = judge_numerics(observe(cell, fault(), fault(), case(mix)), cell)
    assert checks <= {finding.check for finding in verdict.findings}


def test_alpha_still_names_the_layer() -> None:
    cell = axes_for("mxfp8_block_scaling")
    verdict = judge_numerics(observe(cell, faults.OneLayerInBf16(), case=case(attention)), cell)
    assert abs(verdict.summary["alphas"]["output down fprop"]) < 0.1
    found = [f.where for f in verdict.findings if f.check == "numerics.alpha"]
    assert found[0] == "eager, output, down fprop"


def noise_of(mix: Mix) -> Noise:
    cell = axes_for("mxfp8_block_scaling")
    obs = observe(cell, case=case(mix))
    assert obs.eager is not None
    (noise,) = noises_of(obs, obs.eager, torch.bfloat16)
    return noise


def test_a_chain_of_linears_has_no_noise_so_nothing_is_ever_excused_there() -> None:
    assert noise_of(chain).silent
    cell = axes_for("mxfp8_block_scaling")
    bad = Bench(observe(cell, faults.BiasLost(), case=case(chain)), cell)
    assert all(step.noise.silent for view in bad.views for step in view.oracle.steps)


def test_noise_sits_behind_the_operations_that_make_it() -> None:
    noise = noise_of(attention)
    assert (0, "grad_output") in noise.operands
    assert (1, "input") in noise.operands  # behind the gelu
    assert {"output", "norm.weight", "norm.bias", "input0"} <= set(noise.tensors)
    assert all(bool((size >= 0).all()) for size in noise.tensors.values())
    assert noise.tensors["output"].shape == (128, 128)


def test_noise_is_not_measured_where_the_tight_bounds_explain_the_run() -> None:
    cell = axes_for("mxfp8_block_scaling")
    bench = Bench(observe(cell, case=case(chain)), cell)
    bench._noises = lambda: pytest.fail("measured without need")  # type: ignore[method-assign]
    assert len(bench.views) == 1


def test_a_program_that_mixes_dtypes_says_that_noise_was_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*args: Any) -> Any:
        raise RuntimeError("expected both matrices to have the same dtype")

    monkeypatch.setattr("harness.judge.numerics_bench.noises_of", refuses)
    cell = axes_for("mxfp8_block_scaling")
    verdict = judge_numerics(observe(cell, faults.BiasLost(), case=case(chain)), cell)
    assert verdict.notes == (
        "noise of high-precision operations not measured: expected both matrices to have the same dtype",
    )
    assert verdict.findings


def test_noise_widens_the_admissible_difference() -> None:
    own = torch.ones(4, 4, dtype=torch.float64)
    precision = precision_of(torch.bfloat16)
    quiet = admissible_difference(own, precision, FP32)
    loud = admissible_difference(own, precision, FP32, torch.full((4, 4), 0.5, dtype=torch.float64))
    assert torch.equal(loud, quiet + 4.0)
