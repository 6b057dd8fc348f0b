"""What a matrix would come to: counted by evidence, and judged by the rule that judges a run."""

from __future__ import annotations

import dataclasses
import datetime
import shlex

import pytest

from harness.doctor import probe
from harness.doctor.forecast import Asked, forecast_cell
from harness.doctor.questions import ProviderFacts, Request, program_of
from harness.doctor.types import MatrixReport, MatrixRow, Shortfall
from harness.plan.ids import cell_id
from harness.run.execute import execute_cell
from harness.types import Axes, Cell, Evidence, Raises, Spec, Verdict
from tests.support.doctoring import ON_HOPPER, TE_FIX, forecast_of, provider_facts

RECIPES = "matrix: {recipe: [float8_current_scaling, mxfp8_block_scaling], nesting: [flat, sequential]}\n"
TODAY = datetime.date(2026, 6, 1)
UNAVAILABLE = ProviderFacts("sm90", (13, 0), unavailable="Transformer Engine is not installed", fix=TE_FIX)


def one(report: MatrixReport, recipe: str) -> MatrixRow:
    (row,) = [row for row in report.rows if row.recipe == recipe]
    return row


def short(report: MatrixReport) -> Shortfall:
    (shortfall,) = report.shortfalls
    return shortfall


def test_cells_are_counted_by_evidence() -> None:
    recipes = "float8_current_scaling, mxfp8_block_scaling, nvfp4_block_scaling, float8_rowwise_scaling"
    report = forecast_of(
        f"require: traced\nmatrix: {{recipe: [{recipes}], nesting: [flat, nested], arch: [host, sm100]}}\n"
    )
    counts = {
        row.recipe: (row.native, row.emulated, row.traced, row.negative, row.skip, row.unknown) for row in report.rows
    }
    assert counts == {
        "float8_current_scaling": (2, 0, 2, 0, 0, 0),
        "mxfp8_block_scaling": (0, 2, 2, 0, 0, 0),
        "nvfp4_block_scaling": (0, 0, 2, 2, 0, 0),
        "float8_rowwise_scaling": (0, 0, 2, 0, 2, 0),
    }
    assert {row.recipe: row.best for row in report.rows}["nvfp4_block_scaling"] == "traced"
    assert (report.cells, report.met) == (16, True)


@pytest.mark.parametrize(("require", "met"), [("traced", True), ("emulated", True), ("native", False)])
def test_require_is_the_runs_own_rule(require: str, met: bool) -> None:
    report = forecast_of(f"require: {require}\n{RECIPES}")
    assert report.met is met
    assert [row.recipe for row in report.rows if not row.met] == ([] if met else ["mxfp8_block_scaling"])


def test_a_shortfall_says_what_is_required_what_there_is_why_and_what_to_do() -> None:
    report = forecast_of(f"require: native\n{RECIPES}", words=("--set", "seed=1"))
    assert short(report) == Shortfall(
        provider="reference",
        recipe="mxfp8_block_scaling",
        required="native",
        best="emulated",
        why="needs compute capability 10.0 or higher, sm90 has 9.0",
        next="ask on a machine with a native kernel: sm100 (B200), sm103 (B300)",
        command="python runner.py doctor --matrix made.yaml --set seed=1",
    )
    wanted = "python runner.py --matrix made.yaml --set seed=1 --select recipe=float8_current_scaling"
    assert report.command == wanted
    assert forecast_of(f"require: emulated\n{RECIPES}").command == ""


def test_another_gpu_is_traced_only() -> None:
    report = forecast_of("require: emulated\nmatrix: {recipe: [mxfp8_block_scaling], arch: [sm100]}\n")
    assert (report.met, short(report).best) == (False, "traced")
    assert short(report).why == "sm100 is not this machine's architecture (sm90): traced only"
    assert report.command == ""  # nothing is left that could be met


def test_a_provider_that_is_not_installed() -> None:
    text = f"require: emulated\ndefaults: {{provider: transformer_engine}}\n{RECIPES}"
    report = forecast_of(text, {"transformer_engine": Asked(UNAVAILABLE)})
    assert {(row.skip, row.best, row.met) for row in report.rows} == {(2, "none", False)}
    first = report.shortfalls[0]
    assert (first.why, first.next, first.command) == (UNAVAILABLE.unavailable, "install or mend it", TE_FIX)


def test_a_provider_without_its_gpu_and_without_a_fix() -> None:
    facts = dataclasses.replace(UNAVAILABLE, arch="cpu", unavailable="it needs a GPU, and torch sees none", fix="")
    text = "require: emulated\nmatrix: {provider: [transformer_engine], recipe: [float8_current_scaling]}\n"
    report = forecast_of(text, {"transformer_engine": Asked(facts)})
    assert short(report).next.startswith("ask on a machine with a native kernel: sm89 (L4, RTX 4090), sm90")


def test_a_provider_that_died() -> None:
    text = "require: traced\nmatrix: {provider: [transformer_engine, reference], recipe: [float8_current_scaling]}\n"
    report = forecast_of(text, {"transformer_engine": Asked(None, "its process was killed by SIGSEGV")})
    assert [(row.unknown, row.best, row.met) for row in report.rows] == [(1, "none", False), (0, "native", True)]
    assert short(report).why == "its process was killed by SIGSEGV"
    assert short(report).command == "python runner.py doctor --provider transformer_engine"
    assert report.notes == ("1 cell of transformer_engine could not be asked about: its process was killed by SIGSEGV",)
    assert report.command == "python runner.py --matrix made.yaml --select provider=reference"


def test_a_provider_that_could_not_be_asked_for_want_of_torch() -> None:
    asked = Asked(None, "its process was not started", "pip install 'torch>=2.11'")
    report = forecast_of(f"require: traced\n{RECIPES}", {"reference": asked})
    assert {one.command for one in report.shortfalls} == {"pip install 'torch>=2.11'"}


def test_a_provider_that_raised_and_a_question_that_raised() -> None:
    text = "require: traced\nmatrix: {recipe: [float8_current_scaling]}\n"
    report = forecast_of(text, {"reference": Asked(ProviderFacts("sm90", error="ImportError: no symbol"))})
    assert (report.rows[0].unknown, short(report).why) == (1, "ImportError: no symbol")
    cell = forecast_cell_of()
    program = program_of(cell)
    facts = provider_facts(Request(1.0, None, (program,)))
    answer = dataclasses.replace(facts.answers[0], evidence="", error="KeyError: 'sm90'")
    found = forecast_cell(cell, Asked(dataclasses.replace(facts, answers=(answer,))), TODAY)
    assert (found.result.verdict, found.result.evidence, found.why) == (
        Verdict.ERROR,
        Evidence.NONE,
        "KeyError: 'sm90'",
    )


def forecast_cell_of(**axes: object) -> Cell:
    values = {"case": "toy_linear", "provider": Spec("reference"), "recipe": Spec("float8_current_scaling"), **axes}
    own = Axes(**values)  # type: ignore[arg-type]
    return Cell(cell_id(own), own, None)


def test_a_recipe_that_is_refused_everywhere_is_not_asked_for_more() -> None:
    report = forecast_of("require: emulated\nmatrix: {recipe: [nvfp4_block_scaling, float8_current_scaling]}\n")
    assert (one(report, "nvfp4_block_scaling").negative, one(report, "nvfp4_block_scaling").met) == (1, True)
    assert report.met


def test_a_matrix_of_refusals_alone_executes_nothing() -> None:
    report = forecast_of("require: emulated\nmatrix: {recipe: [nvfp4_block_scaling]}\n")
    assert (report.met, report.shortfalls) == (False, ())
    assert report.notes[0].startswith("nothing was executed")


def test_a_recipe_that_the_library_lacks_in_every_cell() -> None:
    report = forecast_of("require: traced\nmatrix: {recipe: [float8_rowwise_scaling, float8_current_scaling]}\n")
    assert short(report).next == "its cells are skipped here: see its cells, and leave them out"
    assert shlex.split(short(report).command)[-3:] == ["--select", "recipe=float8_rowwise_scaling", "--plan"]
    assert report.command.endswith("--select recipe=float8_current_scaling")


WAIVER = "  - {{kind: {kind}, when: {{nesting: flat{arch}}}, reason: known, owner: me, expires: {expires}{more}}}\n"


def waived(kind: str = "xfail", arch: str = "", expires: str = "2030-01-01", more: str = "") -> MatrixReport:
    matrix = "require: emulated\nmatrix: {recipe: [float8_current_scaling], nesting: [flat]}\nwaivers:\n"
    return forecast_of(matrix + WAIVER.format(kind=kind, arch=arch, expires=expires, more=more))


def test_an_expected_failure_earns_nothing() -> None:
    report = waived()
    assert (report.met, short(report).best) == (False, "none")
    assert "known" in short(report).why
    assert report.notes[0].startswith("1 cell of reference expected to fail: waiver made.yaml:")
    assert short(report).next == "none of its cells can pass here: see its cells, and leave them out"


def test_a_waiver_that_has_expired_is_a_red() -> None:
    report = waived(expires="2026-05-31")
    assert not report.met
    assert "will be red: waiver.expired" in report.notes[0]
    assert not waived(expires="2026-06-01").notes[0].startswith("1 cell of reference will be red")


def test_a_waiver_for_elsewhere_or_a_quarantine_takes_nothing_away() -> None:
    assert waived(more=", versions: {torch: ==2.10.*}").met
    assert not waived(more=", versions: {torch: ==2.11.*}").met
    assert waived(kind="quarantine").met


def test_a_belief_that_the_judge_calls_wrong_earns_nothing() -> None:
    boast = {**ON_HOPPER, "mxfp8_block_scaling": ("native", "")}
    text = "require: native\nmatrix: {recipe: [mxfp8_block_scaling]}\n"
    spec = Spec("mxfp8_block_scaling")
    facts = provider_facts(Request(1.0, Spec("reference"), (program_of(forecast_cell_of(recipe=spec)),)), boast)
    report = forecast_of(text, {"reference": Asked(facts)})
    assert (report.rows[0].native, report.rows[0].best, report.met) == (1, "none", False)
    assert short(report).why.startswith("the judge's support table says emulated or unsupported")


def test_the_inner_recipe_limits_a_cell_by_name() -> None:
    partner = {**ON_HOPPER, "float8_block_scaling": ("emulated", "no kernel")}
    cell = dataclasses.replace(forecast_cell_of(), inner=Spec("float8_block_scaling"))
    facts = provider_facts(Request(1.0, None, (program_of(cell),)), partner)
    found = forecast_cell(cell, Asked(dataclasses.replace(facts, cuda=(12, 4))), TODAY)
    assert (found.result.evidence, found.why) == (Evidence.EMULATED, "inner recipe float8_block_scaling: no kernel")


@pytest.mark.parametrize(("phase", "judged"), [("compile", True), ("enter", False)])
def test_a_refusal_under_compile_still_runs_eagerly(phase: str, judged: bool) -> None:
    cell = forecast_cell_of()
    expect = dataclasses.replace(cell.expect, raises=Raises("RuntimeError", "not supported", phase))
    cell = dataclasses.replace(cell, expect=expect)
    found = forecast_cell(cell, Asked(provider_facts(Request(1.0, None, (program_of(cell),)))), TODAY)
    assert ("numerics.codes" in found.result.checks) is judged
    assert "error.refusal" in found.result.checks


def test_a_bare_name_would_take_the_provider_that_falls_short_too() -> None:
    text = "require: native\nmatrix: {provider: [reference, {name: reference, emulate: false}], "
    both = forecast_of(
        text + "recipe: [mxfp8_block_scaling]}\n",
        {
            "reference": Asked(
                provider_facts(
                    Request(1.0, None, (program_of(forecast_cell_of(recipe=Spec("mxfp8_block_scaling"))),)),
                    {**ON_HOPPER, "mxfp8_block_scaling": ("unsupported", "no")},
                )
            )
        },
    )
    assert not both.met
    assert both.command == ""


@pytest.mark.parametrize(
    ("provider", "recipe", "arch"),
    [
        (Spec("reference"), "float8_current_scaling", "cpu"),
        (Spec("reference"), "mxfp8_block_scaling", "cpu"),
        (Spec("reference", (("emulate", False),)), "nvfp4_block_scaling", "cpu"),
        (Spec("reference", (("rehearse", True),)), "mxfp8_block_scaling", "sm100"),
        (Spec("transformer_engine"), "float8_current_scaling", "host"),
    ],
)
def test_a_forecast_is_what_the_run_comes_to(provider: Spec, recipe: str, arch: str) -> None:
    cell = forecast_cell_of(provider=provider, recipe=Spec(recipe), arch=arch, backend="eager")
    facts = probe.provider_facts(provider, (program_of(cell),))
    foretold = forecast_cell(cell, Asked(facts), TODAY).result
    came = execute_cell(cell)
    assert (foretold.verdict, foretold.evidence, foretold.arch) == (came.verdict, came.evidence, came.arch)
    if came.verdict is Verdict.SKIP:
        assert foretold.reason == came.reason
    assert set(foretold.checks) <= set(came.checks)
