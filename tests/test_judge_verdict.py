"""A program that can't be built is the case's fault; one that can't be built any more may be the product's."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import pytest

from harness.judge.verdict import judge_cell
from harness.observe.types import ErrorSeen, StateDiff
from harness.program import Expects
from harness.types import Verdict
from tests.support.judging import error, judging

LEFT = StateDiff("after eager", "torch.default_device", "cpu", "meta")
TWICE = (error("eager"), error("build"))


@pytest.mark.parametrize(
    ("errors", "expects", "diffs", "verdict"),
    [
        ((error("build"),), None, (), Verdict.ERROR),
        ((error("build"),), None, (LEFT,), Verdict.ERROR),
        ((error("build"),), Expects(), (), Verdict.ERROR),
        (TWICE, Expects(), (LEFT,), Verdict.FAIL),
        ((error("build"),), Expects(), (LEFT,), Verdict.FAIL),
        ((error("eager"),), Expects(), (), Verdict.FAIL),
        ((error("build", message="CUDA out of memory"),), Expects(), (LEFT,), Verdict.OOM),
    ],
)
def test_whose_fault_a_failed_build_is(
    errors: Sequence[ErrorSeen], expects: Expects | None, diffs: Sequence[StateDiff], verdict: Verdict
) -> None:
    broken = judging(
        errors=tuple(errors), expects=expects, state_diffs=tuple(diffs), eager=None, eager_again=None, compiled=None
    )
    judged = judge_cell(broken, cuda=None, versions={}, today=datetime.date(2000, 1, 1))
    assert judged.verdict is verdict
    assert ("state.unchanged" in {finding.check for finding in judged.findings}) == bool(diffs)
