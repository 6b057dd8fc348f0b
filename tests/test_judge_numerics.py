"""harness.judge.numerics: good runs pass every check with room to spare; every defect is caught, with a margin."""

from __future__ import annotations

import gc
import math
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch

from harness.judge.numerics import CHECKS, NumericsVerdict, judge_numerics
from harness.judge.numerics_bare import BARE_CHECKS
from harness.judge.oracle_provider import OracleProvider
from harness.observe.types import Observations
from harness.serialize import to_jsonable
from harness.types import DATA_KINDS, NESTINGS, Evidence, Spec
from tests.support import judge_faults as faults
from tests.support.judge_stub import StubProvider, axes_for, observe

STATELESS = (
    "float8_current_scaling",
    "float8_rowwise_scaling",
    "float8_block_scaling",
    "mxfp8_block_scaling",
    "nvfp4_block_scaling",
)


def judge(provider: type[StubProvider], recipe: str = "float8_rowwise_scaling", **axes: Any) -> NumericsVerdict:
    cell = axes_for(recipe, **axes)
    return judge_numerics(observe(cell, provider(), provider()), cell)


def fired(verdict: NumericsVerdict) -> set[str]:
    return {finding.check for finding in verdict.findings}


def texts(verdict: NumericsVerdict, check: str) -> list[str]:
    return [str(finding) for finding in verdict.findings if finding.check == check]


@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("recipe", STATELESS)
def test_good_runs_pass_every_check_with_margins_of_two(recipe: str, nesting: str) -> None:
    for seed, data in enumerate(DATA_KINDS):
        verdict = judge(StubProvider, recipe, nesting=nesting, data=data, seed=seed)
        assert verdict.findings == ()
        assert verdict.notes == ()
        assert set(verdict.checks) == set(CHECKS) - {"numerics.later"}  # the stub makes no later calls
        margins = {name: margin["ratio"] for name, margin in verdict.summary["margins"].items()}
        assert {"numerics.kernel", "numerics.program", "numerics.alpha"} <= set(margins)
        assert max(margins.values()) < 0.5, margins


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_good_runs_pass_in_other_dtypes(dtype: str) -> None:
    verdict = judge(StubProvider, "float8_current_scaling", nesting="nested", dtype=dtype)
    assert verdict.findings == ()
    assert max(margin["ratio"] for margin in verdict.summary["margins"].values()) < 0.5


# Defect, recipe, nesting, the checks that must fire, and of these the one whose value / bound must be two or more.
FAULTS: list[tuple[type[StubProvider], str, str, set[str], str]] = [
    (faults.ScaleTimes2, "float8_rowwise_scaling", "nested", {"scales", "codes", "program", "alpha"}, "program"),
    (faults.ScaleTimes8, "float8_current_scaling", "flat", {"scales", "codes", "program", "alpha"}, "program"),
    (faults.ScaleWasted64, "float8_rowwise_scaling", "nested", {"scales", "codes"}, ""),
    (faults.RoundTowardZero, "mxfp8_block_scaling", "nested", {"codes", "program", "alpha"}, "alpha"),
    (faults.RoundTowardZero, "float8_current_scaling", "nested", {"codes", "program", "alpha"}, "alpha"),
    (faults.E5M2ForE4M3, "float8_block_scaling", "nested", {"scales", "codes", "program", "alpha"}, "alpha"),
    (faults.RowScaleAsColumnScale, "float8_rowwise_scaling", "flat", {"scales", "program", "alpha"}, "program"),
    (faults.BlockScalesShifted, "mxfp8_block_scaling", "nested", {"scales", "program", "alpha"}, "program"),
    (faults.BlockScalesShifted, "float8_block_scaling", "nested", {"scales", "program"}, "program"),
    (faults.LastBlockDropped, "nvfp4_block_scaling", "nested", {"kernel", "program"}, "kernel"),
    (faults.TransposedOperand, "float8_current_scaling", "flat", {"kernel", "program"}, "kernel"),
    (faults.AccumulatesInBf16, "float8_current_scaling", "nested", {"kernel"}, "kernel"),
    (faults.PlanOnly, "float8_rowwise_scaling", "nested", {"tap", "program", "alpha"}, "alpha"),
    (faults.PlanOnlyForward, "mxfp8_block_scaling", "nested", {"tap", "program", "alpha"}, "alpha"),
    (faults.PlanOnlyDgrad, "float8_block_scaling", "nested", {"tap", "program", "alpha"}, "alpha"),
    (faults.PlanOnlyWgrad, "nvfp4_block_scaling", "nested", {"tap", "program", "alpha"}, "alpha"),
    (faults.OneLayerInBf16, "float8_rowwise_scaling", "nested", {"tap", "program", "alpha"}, "alpha"),
    (faults.EverythingInBf16, "float8_current_scaling", "nested", {"tap", "program", "alpha"}, "alpha"),
    (faults.Fp8EverywhereElse, "float8_current_scaling", "nested_disabled", {"tap", "program"}, "program"),
    (faults.OuterRecipeInside, "float8_rowwise_scaling", "nested", {"scales", "codes", "program", "alpha"}, "alpha"),
    (faults.OuterRecipeInside, "mxfp8_block_scaling", "deep", {"scales", "codes", "program", "alpha"}, "alpha"),
    (faults.GradientTwice, "float8_current_scaling", "flat", {"tap", "program"}, "program"),
    (faults.WeightGradientTwice, "mxfp8_block_scaling", "flat", {"tap", "program"}, "program"),
    (faults.WeightGradientTransposed, "mxfp8_block_scaling", "flat", {"tap", "program"}, "program"),
    (faults.BiasLost, "float8_current_scaling", "nested", {"tap", "program"}, "program"),
    (faults.NanInOutput, "float8_current_scaling", "flat", {"finite", "program"}, ""),
    (faults.NanInWeightGradient, "float8_current_scaling", "flat", {"finite", "program", "alpha", "tap"}, ""),
    (faults.WeightGradientRowZero, "float8_current_scaling", "flat", {"nonzero", "program", "tap"}, "program"),
    (faults.ProductMissing, "float8_current_scaling", "nested", {"tap"}, ""),
    (faults.ProductTwice, "float8_current_scaling", "nested", {"tap"}, ""),
    (faults.OtherInputInTap, "float8_block_scaling", "flat", {"tap"}, ""),
    (faults.ReportsWrongScale, "float8_rowwise_scaling", "flat", {"scales", "kernel"}, "kernel"),
]


@pytest.mark.parametrize(
    ("fault", "recipe", "nesting", "checks", "measured"),
    FAULTS,
    ids=[f"{row[0].__name__}-{row[1]}-{row[2]}" for row in FAULTS],
)
def test_every_defect_is_caught_by_the_checks_that_are_there_for_it(
    fault: type[StubProvider], recipe: str, nesting: str, checks: set[str], measured: str
) -> None:
    shape = (128, 128, 128) if nesting == "flat" else (128, 256, 128)  # square where operands are to be confused
    verdict = judge(fault, recipe, nesting=nesting, shape=shape)
    assert {f"numerics.{name}" for name in checks} <= fired(verdict)
    if measured:
        assert verdict.summary["margins"][f"numerics.{measured}"]["ratio"] >= 2


@pytest.mark.parametrize("data", DATA_KINDS)
@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (faults.ScaleTimes2, "codes"),
        (faults.ScaleTimes8, "codes"),
        (faults.ScaleWasted64, "codes"),
        (faults.RoundTowardZero, "codes"),
        (faults.AccumulatesInBf16, "kernel"),
        (faults.OneLayerInBf16, "alpha"),
        (faults.PlanOnlyWgrad, "alpha"),
        (faults.BiasLost, "program"),
        (faults.GradientTwice, "program"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_defects_show_on_every_kind_of_data(fault: type[StubProvider], check: str, data: str) -> None:
    assert f"numerics.{check}" in fired(judge(fault, nesting="nested", data=data, seed=1))


def test_a_wasted_scale_is_seen_by_scales_and_bytes_alone() -> None:
    """Why bytes are judged at all: the program's results can't tell, nor can a kernel given these operands."""
    assert fired(judge(faults.ScaleWasted64, nesting="nested")) == {"numerics.scales", "numerics.codes"}


def test_a_self_consistent_quantiser_fault_is_invisible_to_the_kernel_check() -> None:
    """Why an independent oracle is needed: these products are right for the operands that they were given."""
    for fault in (faults.RoundTowardZero, faults.ScaleTimes8, faults.E5M2ForE4M3):
        assert "numerics.kernel" not in fired(judge(fault, nesting="nested"))


@pytest.mark.parametrize("data", DATA_KINDS)
@pytest.mark.parametrize("fault", [faults.OneLayerInBf16, faults.PlanOnlyForward], ids=["silent", "tap lies"])
def test_alpha_names_the_layer_that_ran_without_fp8(fault: type[StubProvider], data: str) -> None:
    verdict = judge(fault, nesting="nested", data=data)
    found = [f for f in verdict.findings if f.check == "numerics.alpha" and "output" in f.where]
    assert [f.where for f in found] == ["compiled, output, layers.1 fprop"]
    alpha = verdict.summary["alphas"]["output layers.1 fprop"]
    assert abs(alpha) < 0.1
    assert verdict.summary["alphas"]["output layers.0 fprop"] == pytest.approx(1.0, abs=0.1)


def test_alpha_names_the_gradient_product_that_ran_without_fp8() -> None:
    dgrad = judge(faults.PlanOnlyDgrad, nesting="nested").summary["alphas"]
    assert abs(dgrad["input0 layers.1 dgrad"]) < 0.1
    assert dgrad["output all"] == pytest.approx(1.0, abs=0.01)
    wgrad = judge(faults.PlanOnlyWgrad, nesting="nested").summary["alphas"]
    assert abs(wgrad["layers.1.weight layers.1 wgrad"]) < 0.1
    assert wgrad["layers.0.weight layers.0 wgrad"] == pytest.approx(1.0, abs=0.01)


def test_findings_say_where_and_by_what_factor() -> None:
    wasted = judge(faults.ScaleWasted64, nesting="flat")
    (first, *_) = texts(wasted, "numerics.scales")
    assert "[eager, layers.0 fprop, operand A (input)]" in first
    assert "64 times as large (128 of 128 blocks)" in first
    (first, *_) = texts(judge(faults.RoundTowardZero, nesting="flat"), "numerics.codes")
    assert "block [0, 0]" in first
    assert "all towards zero" in first
    doubled = texts(judge(faults.WeightGradientTwice, nesting="flat"), "numerics.program")
    assert any("the whole tensor is 2 times the oracle's" in text for text in doubled)
    assert any("gradient of layers.0.weight" in text for text in doubled)


def test_each_check_reports_its_first_findings_and_a_count() -> None:
    verdict = judge(faults.RoundTowardZero, nesting="deep")
    codes = texts(verdict, "numerics.codes")
    assert len(codes) == 3
    assert codes[-1].endswith("more)")


def test_finiteness_comes_first() -> None:
    assert next(iter(CHECKS)) == "numerics.finite"
    verdict = judge(faults.NanInOutput, nesting="flat")
    assert verdict.findings[0].check == "numerics.finite"
    assert "nan at [5, 0] (256 of 32768 elements)" in str(verdict.findings[0])  # the row that the NaN went through


@pytest.mark.parametrize("where", ["output", "input0", "layers.0.weight", "layers.1.bias"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_one_bad_element_anywhere_turns_the_cell_red_at_every_check_that_sees_it(where: str, value: float) -> None:
    cell = axes_for("float8_current_scaling")
    obs = observe(cell, StubProvider(), StubProvider())
    assert obs.compiled is not None
    step = obs.compiled.steps[0]
    tensor = step.output if where == "output" else step.grads[where]
    tensor.view(-1)[11] = value
    verdict = judge_numerics(obs, cell)
    assert {"numerics.finite", "numerics.eager", "numerics.program"} <= fired(verdict)
    if where in ("output", "input0", "layers.0.weight"):
        assert "numerics.alpha" in fired(verdict)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"evidence": Evidence.TRACED}, "evidence is traced"),
        ({"evidence": Evidence.NEGATIVE}, "evidence is negative"),
        ({"evidence": Evidence.NONE}, "evidence is none"),
        ({"eager": None, "compiled": None}, "nothing ran"),
        ({"rebuild": None}, "the program can't be rebuilt on the oracle"),
    ],
)
def test_what_is_not_judged_says_why_and_claims_no_check(changes: dict[str, Any], note: str) -> None:
    cell = axes_for()
    verdict = judge_numerics(replace(observe(cell), **changes), cell)
    assert verdict == NumericsVerdict(notes=(f"numerics not judged: {note}",))


def test_a_program_that_the_oracle_cannot_build_is_not_judged() -> None:
    cell = axes_for(Spec("nvfp4_block_scaling", (("disable_rht", False),)))
    verdict = judge_numerics(observe(cell), cell)
    assert verdict.findings == ()
    assert set(verdict.checks) <= set(BARE_CHECKS)  # none that speaks of FP8
    assert verdict.notes[0].startswith("FP8 numerics not judged, there is no oracle: ")
    assert "disable_rht=false" in verdict.notes[0]


def test_an_inconsistent_observation_is_an_error_not_a_note() -> None:
    cell = axes_for()
    with pytest.raises(ValueError, match="judging 1 steps takes as many batches, not 0"):
        judge_numerics(replace(observe(cell), batches=()), cell)


def test_eager_alone_is_judged_without_a_comparison() -> None:
    cell = axes_for()
    good, bad = judge_numerics(observe(cell), cell), judge_numerics(observe(cell, faults.RoundTowardZero()), cell)
    assert good.findings == ()
    assert set(good.checks) == set(CHECKS) - {"numerics.eager", "numerics.later"}
    assert good.summary["judged"] == "eager"
    assert {"numerics.codes", "numerics.alpha"} <= fired(bad)


def test_summary_is_json_and_complete() -> None:
    verdict = judge(StubProvider, "float8_current_scaling", nesting="nested")
    summary = to_jsonable(verdict.summary)
    tensors = summary["tensors"]
    assert set(tensors) == {"output", "input0"} | {f"layers.{i}.{p}" for i in range(3) for p in ("weight", "bias")}
    assert set(tensors["output"]) == {"max_error", "bound", "ratio", "alpha", "alpha_bound", "sqnr"}
    assert 20 < tensors["output"]["sqnr"] < 35
    assert tensors["output"]["alpha"] == pytest.approx(1.0, abs=0.01)
    assert (summary["judged"], summary["products"], summary["records"]) == ("compiled", 9, 9)
    assert set(summary["alphas"]) >= {"output all", "output layers.0 fprop", "input0 layers.2 dgrad"}


def test_judging_changes_nothing_that_it_looks_at() -> None:
    cell = axes_for(nesting="nested")
    obs = observe(cell, StubProvider(), StubProvider())
    before = _fingerprint(obs)
    judge_numerics(obs, cell)
    assert _fingerprint(obs) == before
    assert torch.get_num_threads() >= 1


def _fingerprint(obs: Observations) -> list[float]:
    assert obs.eager is not None
    tensors = [obs.eager.steps[0].output, *obs.eager.steps[0].grads.values(), *obs.parameters.values()]
    tensors += [t for r in obs.eager.records for t in (r.a.source, r.a.scale, r.output)]
    return [float(t.double().sum()) for t in tensors]


@pytest.mark.parametrize("fault", [StubProvider, faults.OneLayerInBf16, faults.NanInOutput], ids=lambda f: f.__name__)
def test_a_judged_cell_leaves_nothing_behind(fault: type[StubProvider], monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle through the autograd graph, which no garbage collector sees, once cost 20 MB a cell."""
    made: list[weakref.ref[OracleProvider]] = []
    original = OracleProvider.__init__

    def remembered(self: OracleProvider, *args: Any, **options: Any) -> None:
        made.append(weakref.ref(self))
        original(self, *args, **options)

    monkeypatch.setattr(OracleProvider, "__init__", remembered)
    cell = axes_for(nesting="nested")
    obs = observe(cell, fault(), fault())
    gc.collect()
    gc.disable()
    try:
        judge_numerics(obs, cell)
        assert made
        assert [ref() for ref in made if ref() is not None] == []
    finally:
        gc.enable()
