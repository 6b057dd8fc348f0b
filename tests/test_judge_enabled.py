"""Which checks are run can be chosen (harness.judge.check.Enabled), and of the others no code is."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence

import pytest

from harness.judge import numerics, verdict
from harness.judge.check import EVERY, Check, Enabled, Judging
from harness.judge.numerics_bench import Bench
from harness.judge.verdict import CHECK_NAMES, Judged, judge_cell
from harness.observe.types import StateDiff, TracedStep
from harness.types import Cell, Evidence, Finding, Spec, Verdict
from tests.support import judge_faults as faults
from tests.support.judge_stub import StubProvider, axes_for, observe
from tests.support.judging import judging
from tests.test_judge_numerics_bare import no_oracle

AXES = axes_for(nesting="flat", backend="aot_eager")


def judge(cell: Judging, enabled: Enabled = EVERY) -> Judged:
    return judge_cell(cell, cuda=None, versions={}, today=datetime.date(2026, 1, 1), enabled=enabled)


def red(judged: Judged) -> set[str]:
    return {finding.check for finding in judged.findings}


def test_enabled_by_name() -> None:
    assert "state.unchanged" in EVERY
    assert "state.unchanged" in Enabled(only=frozenset({"state.unchanged"}))
    assert "state.observed" not in Enabled(only=frozenset({"state.unchanged"}))
    assert "state.observed" in Enabled(but=frozenset({"state.unchanged"}))
    assert "state.unchanged" not in Enabled(but=frozenset({"state.unchanged"}))
    assert "state.unchanged" not in Enabled(only=frozenset())


@pytest.mark.parametrize("enabled", [Enabled(only=frozenset({"state.unchangd"})), Enabled(but=frozenset({"x"}))])
def test_an_unknown_name_is_no_green(enabled: Enabled) -> None:
    with pytest.raises(ValueError, match="no check of the judge"):
        judge(judging(), enabled)


def test_nothing_is_applied_where_nothing_is_enabled() -> None:
    broken = judging(state_diffs=(StateDiff("eager", "fp8_enabled", "False", "True"),))
    assert judge(broken).verdict is Verdict.FAIL
    unjudged = judge(broken, Enabled(only=frozenset()))
    assert (unjudged.verdict, unjudged.checks, unjudged.findings) == (Verdict.PASS, (), ())


def test_alone_and_removed() -> None:
    diff = (StateDiff("eager", "fp8_enabled", "False", "True"),)
    broken = judging(state_diffs=diff, state_keys=0)
    assert red(judge(broken)) == {"state.unchanged", "state.observed"}
    for name in ("state.unchanged", "state.observed"):
        alone, removed = judge(broken, Enabled(only=frozenset({name}))), judge(broken, Enabled(but=frozenset({name})))
        assert red(alone) == set(alone.checks) == {name}
        assert red(removed) == {"state.unchanged", "state.observed"} - {name}
        assert name not in removed.checks


def test_beliefs_and_defaults_are_checks_like_others() -> None:
    wrong = judging(support={"float8_current_scaling": ("unsupported", "", "")}, told={"default_recipe": Spec("mxfp8")})
    for name in ("support.belief", "support.default"):
        assert red(judge(wrong, Enabled(only=frozenset({name})))) == {name}
        assert name not in red(judge(wrong, Enabled(but=frozenset({name}))))


def test_the_gradients_of_a_traced_cell_are_a_check_like_others() -> None:
    usual = judging()
    rebuilt = observe(AXES, StubProvider(), StubProvider()).rebuild
    lost = dataclasses.replace(usual.obs, evidence=Evidence.TRACED, rebuild=rebuilt, traced=(TracedStep({}),))
    cell = Judging(Cell("cell", AXES, None), lost)
    assert red(judge(cell, Enabled(only=frozenset({"compile.gradients"})))) == {"compile.gradients"}
    assert "compile.gradients" not in judge(cell, Enabled(but=frozenset({"compile.gradients"}))).checks
    unbuilt = dataclasses.replace(cell, obs=dataclasses.replace(lost, rebuild=None))
    result = judge(unbuilt, Enabled(only=frozenset({"compile.gradients"})))
    assert (red(result), result.checks) == (set(), ())
    assert any(note.startswith("compile.gradients not judged") for note in result.notes)


def spied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of checks as their code runs."""
    ran: list[str] = []

    def noting(check: Check) -> Check:
        def run(cell: Judging) -> Sequence[Finding]:
            ran.append(check.name)
            return check.run(cell)

        return dataclasses.replace(check, run=run)

    monkeypatch.setattr(verdict.run_checks, "__defaults__", (tuple(map(noting, verdict.CHECKS)), EVERY))
    for name, check in numerics.CHECKS.items():

        def numeric(bench: Bench, name: str = name, check: numerics.NumericCheck = check) -> list[Finding]:
            ran.append(name)
            return check(bench)

        monkeypatch.setitem(numerics.CHECKS, name, numeric)  # type: ignore[arg-type]
    return ran


def test_only_the_code_of_enabled_checks_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = spied(monkeypatch)
    cell = Judging(Cell("cell", AXES, None), observe(AXES, StubProvider(), StubProvider()))
    everything = judge(cell)
    assert {"numerics.codes", "numerics.alpha", "state.unchanged"} <= set(everything.checks)
    assert set(ran) == set(everything.checks) - {"support.belief"}
    for name in ("numerics.codes", "numerics.alpha", "fp8.recipe_seen"):
        ran.clear()
        assert set(judge(cell, Enabled(only=frozenset({name}))).checks) == {name}
        assert set(ran) == {name}
        ran.clear()
        judge(cell, Enabled(but=frozenset({name})))
        assert set(ran) == set(everything.checks) - {"support.belief", name}


def test_the_oracle_stays_idle_where_no_numeric_check_is_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Judging(Cell("cell", AXES, None), observe(AXES, StubProvider(), StubProvider()))
    monkeypatch.setattr(Bench, "prepare", lambda self: pytest.fail("the oracle ran"))
    judge(cell, Enabled(only=frozenset({"state.unchanged"})))
    judge(cell, Enabled(but=frozenset(numerics.CHECKS)))


def test_each_numeric_check_alone_gives_what_it_gives_among_all() -> None:
    obs = observe(AXES, faults.RoundTowardZero(), faults.RoundTowardZero())
    cell = Judging(Cell("cell", AXES, None), obs)
    among = red(judge(cell))
    assert "numerics.codes" in among
    assert {name for name in CHECK_NAMES if red(judge(cell, Enabled(only=frozenset({name}))))} == among


def test_eager_that_must_be_wrong_is_a_check_of_its_own() -> None:
    obs = observe(AXES, StubProvider(), StubProvider())
    assert obs.expects is not None
    expects = dataclasses.replace(obs.expects, eager_is_wrong="a reason")
    cell = Judging(Cell("cell", AXES, None), dataclasses.replace(obs, expects=expects, evidence=Evidence.EMULATED))
    alone = judge(cell, Enabled(only=frozenset({"numerics.eager_wrong"})))
    assert (red(alone), alone.checks) == ({"numerics.eager_wrong"}, ("numerics.eager_wrong",))
    assert "numerics.eager_wrong" not in judge(cell, Enabled(but=frozenset({"numerics.eager_wrong"}))).checks


def test_programs_without_an_oracle_are_judged_by_the_enabled_checks_too() -> None:
    obs = observe(AXES, StubProvider(), StubProvider())
    assert obs.expects is not None
    bare = dataclasses.replace(obs, rebuild=no_oracle)
    cell = Judging(Cell("cell", AXES, None), bare)
    numeric = {name for name in judge(cell).checks if name.startswith("numerics.")}
    assert numeric == {"numerics.finite", "numerics.storage", "numerics.eager"}
    assert judge(cell, Enabled(only=frozenset({"numerics.storage"}))).checks == ("numerics.storage",)
