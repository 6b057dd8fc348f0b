"""Waivers forgive exactly what they name, strictly, until they expire."""

from __future__ import annotations

import datetime

import pytest

from harness.judge.waivers import applies, apply_waivers
from harness.types import Verdict, Waiver

TODAY = datetime.date(2026, 6, 1)
VERSIONS = {"torch": "2.13.0+cpu", "cuda": "13.0"}


def waiver(**changes: object) -> Waiver:
    values: dict[str, object] = {
        "kind": "xfail",
        "reason": "known",
        "url": "https://example.org/1",
        "owner": "kernels",
        "expires": "2026-12-31",
        "where": "te.yaml:3",
    }
    return Waiver(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("checks", "failed", "after"),
    [
        (("error.refusal",), {"error.refusal"}, Verdict.XFAIL),
        (("error.refusal", "compile.graphs"), {"error.refusal"}, Verdict.XFAIL),
        ((), {"error.refusal", "numerics.codes"}, Verdict.XFAIL),
        (("error.refusal",), {"error.refusal", "numerics.codes"}, Verdict.FAIL),
    ],
)
def test_a_waiver_that_names_checks_forgives_no_other(
    checks: tuple[str, ...], failed: set[str], after: Verdict
) -> None:
    result = apply_waivers(Verdict.FAIL, (waiver(checks=checks),), "sm90", VERSIONS, TODAY, failed)
    assert result.verdict is after
    assert any("does not cover numerics.codes" in note for note in result.notes) == (after is Verdict.FAIL)


def test_a_waiver_that_names_checks_is_still_strict() -> None:
    assert apply_waivers(Verdict.PASS, (waiver(checks=("a.b",)),), "sm90", VERSIONS, TODAY).verdict is Verdict.XPASS


def test_a_waiver_without_a_report_says_so_by_silence() -> None:
    result = apply_waivers(Verdict.FAIL, (waiver(url=""),), "sm90", VERSIONS, TODAY)
    assert result.notes == ("waiver te.yaml:3: known",)


@pytest.mark.parametrize(
    ("kind", "before", "after", "gates"),
    [
        ("xfail", Verdict.FAIL, Verdict.XFAIL, True),
        ("xfail", Verdict.PASS, Verdict.XPASS, True),
        ("xfail", Verdict.CRASH, Verdict.CRASH, True),
        ("xfail", Verdict.ERROR, Verdict.ERROR, True),
        ("quarantine", Verdict.FAIL, Verdict.FAIL, False),
        ("quarantine", Verdict.PASS, Verdict.PASS, False),
    ],
)
def test_table(kind: str, before: Verdict, after: Verdict, gates: bool) -> None:
    result = apply_waivers(before, (waiver(kind=kind),), "sm90", VERSIONS, TODAY)
    assert (result.verdict, result.gates) == (after, gates)


def test_expired_forgives_nothing_and_is_red_even_on_a_pass() -> None:
    old = waiver(expires="2026-05-31")
    for before in (Verdict.FAIL, Verdict.PASS):
        result = apply_waivers(before, (old,), "sm90", VERSIONS, TODAY)
        assert result.verdict is Verdict.FAIL
        assert [finding.check for finding in result.findings] == ["waiver.expired"]


def test_the_last_day_still_counts() -> None:
    assert apply_waivers(Verdict.FAIL, (waiver(expires="2026-06-01"),), "cpu", VERSIONS, TODAY).verdict is Verdict.XFAIL


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"when": (("arch", "sm90"),)}, True),
        ({"when": (("arch", ("sm100", "sm90")),)}, True),
        ({"when": (("arch", "sm9"),)}, False),
        ({"when": (("arch", "sm100"),)}, False),
        ({"versions": (("torch", ">=2.13"),)}, True),
        ({"versions": (("torch", "<2.13"),)}, False),
        ({"versions": (("te", ">=2.0"),)}, False),
        ({"versions": (("cuda", "==13.0"), ("torch", ">=2.11"))}, True),
        ({"versions": (("cuda", "==12.8"), ("torch", ">=2.11"))}, False),
    ],
)
def test_applies(changes: dict[str, object], expected: bool) -> None:
    assert applies(waiver(**changes), "sm90", VERSIONS) is expected


def test_not_applicable_is_a_note_and_changes_nothing() -> None:
    result = apply_waivers(Verdict.FAIL, (waiver(when=(("arch", "sm100"),)),), "sm90", VERSIONS, TODAY)
    assert (result.verdict, result.notes) == (Verdict.FAIL, ("waiver te.yaml:3 not applicable here",))
