import pytest

from harness.report.run_info import BLAMES, blame, run_record, totals
from harness.types import Attempt, Evidence, Verdict
from tests.support.report_fakes import (
    BYTES,
    ci_axes,
    green_results,
    mixed_results,
    one_of_each,
    passed,
    red,
    run_of,
)


def test_totals_list_every_verdict_and_level_even_at_zero() -> None:
    counts = totals([])
    assert counts.by_verdict == {verdict.value: 0 for verdict in Verdict}
    assert counts.by_evidence == {evidence.value: 0 for evidence in Evidence}


def test_totals_add_up() -> None:
    counts = totals(mixed_results())
    assert counts.results == 70 == sum(counts.by_verdict.values()) == sum(counts.by_evidence.values())
    assert counts.by_verdict["pass"] == sum(counts.passed_by_evidence.values()) == 46
    assert (counts.gating_reds, counts.quarantined_reds, counts.retried, counts.refused) == (19, 1, 1, 8)


def test_one_of_each_verdict_is_counted_once() -> None:
    counts = totals(one_of_each())
    assert all(counts.by_verdict[v.value] == 1 for v in Verdict if v not in (Verdict.PASS, Verdict.FAIL))
    assert counts.by_verdict["pass"] == 5
    assert counts.by_verdict["fail"] == 2  # one of them in quarantine


def test_a_retried_pass_is_counted_as_retried() -> None:
    attempts = (Attempt(Verdict.INFRA, "lost"), Attempt(Verdict.PASS, ""))
    assert totals([passed(ci_axes()[0], attempts=attempts)]).retried == 1
    assert totals([passed(ci_axes()[0], attempts=attempts[1:])]).retried == 0


@pytest.mark.parametrize(
    ("results", "code", "expected"),
    [
        (green_results(), 0, "none"),
        (green_results(), 1, "run"),
        ([], 5, "run"),
        (mixed_results(), 1, "product"),
        ([red(passed(ci_axes()[0]), BYTES, verdict=Verdict.INFRA)], 1, "infra"),
        (
            [
                red(passed(ci_axes()[0]), BYTES, verdict=Verdict.INFRA),
                red(passed(ci_axes()[1]), BYTES, verdict=Verdict.FAIL),
            ],
            1,
            "product",
        ),
        ([red(passed(ci_axes()[0]), BYTES, gates=False)], 0, "none"),
    ],
)
def test_blame(results, code, expected) -> None:
    run = run_of(results, exit_code=code)
    assert blame(run, results) == expected
    assert expected in BLAMES


def test_a_record_is_the_run_with_totals() -> None:
    results = mixed_results()
    record = run_record(run_of(results), results)
    assert record.run_id == run_of(results).run_id
    assert record.totals == totals(results)
    assert record.blame == "product"
