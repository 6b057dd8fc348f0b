import dataclasses
from collections.abc import Callable

import pytest

from harness.report.evidence import (
    FP8_CHECKS,
    REFUSAL_CHECK,
    evidence_rows,
    executed,
    never_native,
    nothing_executed,
    refused,
    unjudged,
)
from harness.report.require import exit_code, only_quarantined, require_findings
from harness.types import CellResult, Evidence, Spec, Verdict
from tests.support.report_fakes import (
    BYTES,
    ci_axes,
    crashed_results,
    green_results,
    mixed_results,
    one_of_each,
    passed,
    red,
)

NATIVE, EMULATED, DELAYED = ci_axes()[10], ci_axes()[30], ci_axes()[0]


def test_the_fakes_are_what_these_tests_take_them_for() -> None:
    assert passed(NATIVE).evidence is Evidence.NATIVE
    assert passed(EMULATED).evidence is Evidence.EMULATED
    assert refused(green_results()[0])


@pytest.mark.parametrize(
    ("require", "evidence", "met"),
    [
        ("native", Evidence.NATIVE, True),
        ("native", Evidence.EMULATED, False),
        ("native", Evidence.TRACED, False),
        ("emulated", Evidence.NATIVE, True),
        ("emulated", Evidence.EMULATED, True),
        ("emulated", Evidence.TRACED, False),
        ("traced", Evidence.NATIVE, True),
        ("traced", Evidence.TRACED, True),
    ],
)
def test_levels_are_ordered(require: str, evidence: Evidence, met: bool) -> None:
    other = passed(EMULATED, evidence=Evidence.NATIVE)  # so that something was executed
    findings = require_findings(require, [passed(NATIVE, evidence=evidence), other])
    assert (findings == []) is met
    if not met:
        assert findings == [
            f"float8_current_scaling on reference: passed no cell "
            f"{require}{'' if require == 'native' else ' or better'}, only {evidence.value}"
        ]


def test_one_cell_of_a_recipe_is_enough() -> None:
    traced = passed(dataclasses.replace(NATIVE, arch="sm100"))
    assert require_findings("native", [traced, passed(NATIVE)]) == []


def test_fields_make_no_other_recipe() -> None:
    waived = dataclasses.replace(NATIVE, recipe=Spec(NATIVE.recipe.name, (("amax_epsilon", 0.5),)))
    results = [passed(NATIVE), red(passed(waived), BYTES, verdict=Verdict.XFAIL)]
    assert require_findings("native", results) == []
    assert len(require_findings("native", results[1:])) == 1


def test_each_provider_must_reach_it_by_itself() -> None:
    other = dataclasses.replace(passed(NATIVE), provider="other", evidence=Evidence.TRACED)
    assert require_findings("native", [passed(NATIVE), other]) == [
        "float8_current_scaling on other: passed no cell native, only traced"
    ]


@pytest.mark.parametrize("verdict", [v for v in Verdict if v is not Verdict.PASS])
def test_only_a_plain_pass_counts(verdict: Verdict) -> None:
    results = [red(passed(NATIVE), BYTES, verdict=verdict), passed(EMULATED)]
    assert require_findings("emulated", results) == [
        f"float8_current_scaling on reference: passed no cell emulated or better (1 {verdict.value})"
    ]


def test_an_unsupported_recipe_is_not_asked_for() -> None:
    assert require_findings("native", [passed(EMULATED, evidence=Evidence.NEGATIVE), passed(NATIVE)]) == []


def test_a_recipe_refused_everywhere_is_neither_asked_for_nor_counted() -> None:
    refusals = [result for result in green_results() if result.axes["recipe"].startswith("delayed")]
    assert all(map(refused, refusals))
    assert require_findings("native", [*refusals, passed(NATIVE)]) == []
    assert require_findings("emulated", refusals) == [
        "nothing was executed: no cell was seen to run FP8 arithmetic on this machine"
    ]


def test_a_refusal_whose_eager_numerics_were_judged_counts() -> None:
    checks = ("error.refusal", "numerics.codes")
    result = passed(DELAYED, reason="refused under compile as documented", checks=checks)
    assert refused(result)
    assert executed(result)
    assert require_findings("native", [result]) == []


def test_a_traced_refusal_counts_neither_way() -> None:
    traced = passed(DELAYED, checks=("error.refusal",), evidence=Evidence.TRACED)
    assert require_findings("traced", [traced]) == []
    assert require_findings("native", [traced, passed(NATIVE)]) == []


def test_a_pass_without_judged_numerics_is_not_evidence() -> None:
    result = passed(NATIVE, checks=("compile.graphs", "fp8.gemms"), notes=("numerics not judged: no oracle",))
    assert unjudged(result)
    assert not executed(result)
    assert require_findings("native", [result, passed(EMULATED, evidence=Evidence.NATIVE)]) == [
        "float8_current_scaling on reference: passed no cell native (1 pass without judged numerics)"
    ]
    assert require_findings("native", [result, passed(ci_axes()[11])]) == []


def test_numerics_that_saw_no_fp8_are_not_evidence() -> None:
    assert unjudged(passed(NATIVE, checks=("numerics.finite", "numerics.program")))
    assert not unjudged(passed(NATIVE))
    assert not unjudged(passed(NATIVE, checks=(), evidence=Evidence.TRACED))


def test_the_names_are_those_of_the_judge() -> None:
    from harness.judge import numerics, state_checks

    assert set(numerics.CHECKS) >= FP8_CHECKS
    assert REFUSAL_CHECK in {check.name for check in state_checks.CHECKS}


def test_a_failed_refusal_is_asked_for() -> None:
    failed = red(green_results()[0], BYTES)
    assert require_findings("native", [failed, passed(NATIVE)])


def test_a_quarantine_neither_gates_nor_hides_a_pass() -> None:
    quarantined = red(passed(EMULATED), BYTES, gates=False)
    assert require_findings("native", [quarantined, passed(NATIVE)]) == []
    assert require_findings("native", [passed(NATIVE, gates=False)]) == []


def quarantined(result: CellResult) -> CellResult:
    return red(result, BYTES, gates=False)


def test_a_recipe_of_which_only_quarantine_is_left_is_named_and_does_not_gate() -> None:
    results = [quarantined(passed(EMULATED)), passed(NATIVE)]
    assert require_findings("emulated", results) == []
    assert only_quarantined("emulated", results) == [
        "mxfp8_block_scaling on reference: not met: only quarantined cells (1 fail)"
    ]
    assert only_quarantined("emulated", [*results, passed(ci_axes()[31])]) == []
    assert only_quarantined("emulated", [passed(EMULATED, gates=False), passed(NATIVE)]) == []


@pytest.mark.parametrize("require", ["native", "emulated", "traced"])
def test_a_quarantine_around_every_cell_is_red(require: str) -> None:
    (finding,) = require_findings(require, [quarantined(passed(NATIVE)), quarantined(passed(EMULATED))])
    assert finding.startswith(f"no cell passed {require}")
    assert finding.endswith("2 in quarantine are red")


@pytest.mark.parametrize("require", ["native", "emulated", "traced"])
@pytest.mark.parametrize("make", [green_results, mixed_results, one_of_each, crashed_results])
def test_a_quarantine_is_never_greener_than_leaving_the_cells_out(
    require: str, make: Callable[[], list[CellResult]]
) -> None:
    for left_out in range(0, 70, 7):
        kept = [result for index, result in enumerate(make()) if index % 7 and index != left_out]
        aside = [quarantined(result) for index, result in enumerate(make()) if not index % 7 or index == left_out]
        assert set(require_findings(require, [*kept, *aside])) >= set(require_findings(require, kept))


def test_a_red_in_quarantine_is_no_execution_that_others_can_lean_on() -> None:
    traced = passed(NATIVE, evidence=Evidence.TRACED)
    findings = require_findings("emulated", [traced, quarantined(passed(EMULATED))])
    assert findings[0].startswith("nothing was executed outside quarantine")
    assert require_findings("emulated", [traced])[0].startswith("nothing was executed: ")


def test_skips_are_not_asked_for_beside_other_cells_but_alone_they_show_nothing() -> None:
    skipped = [dataclasses.replace(passed(axes), verdict=Verdict.SKIP) for axes in ci_axes()[10:13]]
    negative = passed(ci_axes()[13], evidence=Evidence.NEGATIVE)
    assert require_findings("emulated", [*skipped, negative, passed(EMULATED)]) == []
    assert require_findings("emulated", [*skipped, passed(EMULATED)]) == [
        "float8_current_scaling on reference: passed no cell emulated or better (3 skip)"
    ]


def test_a_run_that_executed_nothing_is_red_unless_traced_is_asked_for() -> None:
    traced = [passed(dataclasses.replace(axes, arch="sm100")) for axes in ci_axes()[10:20]]
    assert nothing_executed(traced)
    assert require_findings("traced", traced) == []
    assert require_findings("emulated", traced)[0].startswith("nothing was executed")
    assert not nothing_executed(green_results())
    assert not nothing_executed([])


def test_unknown_levels_are_refused() -> None:
    with pytest.raises(ValueError, match="native, emulated, traced"):
        require_findings("negative", [])


def test_evidence_is_counted_by_level_and_refusals_apart() -> None:
    rows = {row.level: row for row in evidence_rows(mixed_results())}
    assert set(rows) == {"native", "emulated", "rehearsed", "traced", "negative", "none"}
    assert (rows["native"].passed, rows["native"].refused, rows["native"].reds) == (27, 8, 12)
    assert sum(row.cells for row in rows.values()) == 70
    for row in rows.values():
        assert row.passed + row.refused + row.unjudged + row.reds + row.other == row.cells
    assert "none" not in {row.level for row in evidence_rows(green_results())}


def test_an_architecture_that_was_only_traced_is_named() -> None:
    traced = [passed(dataclasses.replace(axes, arch="sm100")) for axes in ci_axes()[10:13]]
    assert never_native([*green_results(), *traced]) == [
        "B200 (sm100) has never been run natively here: 3 cells were traced, none was executed there."
    ]
    assert never_native([*traced, passed(ci_axes()[10], arch="sm100")]) == []
    general = "B200 (sm100) has never been run natively with this harness: nothing here speaks for it."
    assert never_native(green_results()) == [general]


def test_a_rehearsal_is_worth_a_traced_pass_of_the_same_provider() -> None:
    """It executes, and no kernel of the architecture does."""
    rehearsed = passed(NATIVE, evidence=Evidence.REHEARSED, arch="sm100", provider="reference(rehearse=true)")
    assert require_findings("traced", [rehearsed]) == []
    assert require_findings("emulated", [rehearsed])[0].startswith("nothing was executed")
    other = passed(EMULATED, evidence=Evidence.NATIVE)
    (shortfall,) = require_findings("emulated", [rehearsed, other])
    assert shortfall == "float8_current_scaling on reference: passed no cell emulated or better, only traced"
    assert require_findings("emulated", [rehearsed, other, passed(NATIVE)]) == []
    assert not executed(rehearsed)
    assert unjudged(dataclasses.replace(rehearsed, checks=()))
    assert never_native([rehearsed]) == [
        "B200 (sm100) has never been run natively here: 1 cells were rehearsed, none was executed there."
    ]


def test_executed_is_not_what_was_traced_refused_or_lost() -> None:
    assert executed(passed(NATIVE))
    assert executed(red(passed(NATIVE), BYTES))
    assert not executed(passed(NATIVE, evidence=Evidence.TRACED))
    assert not executed(green_results()[0])
    assert not any(map(executed, crashed_results()))


@pytest.mark.parametrize(
    ("results", "unmet", "flags", "code"),
    [
        (green_results(), [], {}, 0),
        (mixed_results(), [], {}, 1),
        (green_results(), ["missing"], {}, 1),
        (mixed_results(), [], {"interrupted": True}, 2),
        (mixed_results(), [], {"interrupted": True, "internal": True}, 3),
        (green_results(), [], {"internal": True}, 3),
        ([], [], {}, 5),
        ([red(passed(NATIVE), BYTES, gates=False)], [], {}, 0),
        ([red(passed(NATIVE), BYTES, verdict=Verdict.XPASS)], [], {}, 1),
    ],
)
def test_exit_codes(results, unmet, flags, code) -> None:
    number, meaning = exit_code(results, unmet, **flags)
    assert number == code
    assert meaning


def test_the_meaning_names_both_reasons() -> None:
    assert exit_code(mixed_results(), ["missing"])[1] == (
        "19 cells not as expected; the required evidence was not reached"
    )
