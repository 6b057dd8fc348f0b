"""What a selftest prints, at any width, and writes for scripts."""

from __future__ import annotations

import json

import pytest

from harness.report.page import Page
from harness.selftest.outcome import End, Outcome
from harness.selftest.render import as_json, plan_lines, put_end, put_outcomes

OUTCOMES = [
    Outcome("missed_one", "x", "cell[a=1]", "numerics.scales", End.MISSED, "numerics.scales said nothing", (), 1.25),
    Outcome("good_one", "y", "cell[b=" + "long" * 40 + "]", "state.unchanged", End.CAUGHT, "why " * 60, (), 0.5),
    Outcome("gpu_one", "z", "cell[c=1]", "case.facts", End.SKIPPED, "needs a CUDA device"),
    Outcome("strange\x1b[31m", "z", "cell[d=1]", "case.facts", End.OTHER, "case.facts said nothing; fail: other"),
]


def printed(width: int, verbosity: int = 0) -> list[str]:
    page = Page(width)
    put_outcomes(page, OUTCOMES, verbosity=verbosity)
    put_end(page, OUTCOMES, 12.0, 1, "2 of 4 not caught as they must be", "reports/x")
    return [line.plain for line in page.lines]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_nothing_unprintable_gets_out(width: int) -> None:
    lines = printed(width)
    assert all(len(line) <= width for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_fault_end_check_time_cell_and_reason_stand_there() -> None:
    text = "\n".join(printed(200))
    for part in ("good_one", "caught", "state.unchanged", "0.5 s", "cell[a=1]", "numerics.scales said nothing"):
        assert part in text
    assert "4 faults in 4 cells: 1 caught, 1 missed, 1 other, 1 skipped; 12 s" in text
    assert "skipped, 1: needs a CUDA device" in text
    assert text.endswith("exit code 1: 2 of 4 not caught as they must be")


def test_what_was_not_caught_comes_last_and_whole() -> None:
    lines = printed(80)
    order = [line.split()[1] for line in lines if line[:1].isalpha() and line.split()[0] in ("caught", "missed")]
    assert order[0] == "good_one"
    assert order[1] == "missed_one"


def test_quiet_shows_reds_alone_and_verbose_wraps_instead_of_cutting() -> None:
    assert "good_one" not in "\n".join(printed(80, -1))
    assert "missed_one" in "\n".join(printed(80, -1))
    assert len(printed(80, 1)) > len(printed(80))


def test_json_holds_every_outcome() -> None:
    data = json.loads(as_json(OUTCOMES, {"exit_code": 1}))
    assert data["exit_code"] == 1
    assert [row["end"] for row in data["outcomes"]] == ["missed", "caught", "skipped", "other"]
    assert data["outcomes"][0]["seconds"] == 1.25


def test_plan_names_fault_check_and_cell() -> None:
    page = Page(80)
    plan_lines(page, [("leaky_exit", "state.unchanged", "toy[x]")])
    assert [line.plain for line in page.lines] == ["leaky_exit: state.unchanged", "  toy[x]"]
