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


def again(outcome: Outcome) -> list[str]:
    return ["python", "runner.py", "selftest", "--fault", outcome.fault]


def printed(width: int, verbosity: int = 0) -> list[str]:
    page = Page(width)
    put_outcomes(page, OUTCOMES, verbosity=verbosity, again=again)
    put_end(page, OUTCOMES, 12.0, 1, "2 of 4 not caught as they must be", "reports/x")
    return [line.plain for line in page.lines]


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("verbosity", [-1, 0, 1])
def test_no_line_is_wider_than_the_terminal_and_nothing_unprintable_gets_out(width: int, verbosity: int) -> None:
    lines = printed(width, verbosity)
    assert all(len(line) <= width for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_what_was_not_caught_stands_there_whole_with_the_command_that_runs_it_again() -> None:
    assert printed(200)[:8] == [
        "missed    missed_one                      numerics.scales  1.2 s",
        "          cell[a=1]",
        "          numerics.scales said nothing",
        "python runner.py selftest --fault missed_one",
        f"other     {OUTCOMES[3].fault.encode('unicode_escape').decode():<30}  case.facts  0.0 s",
        "          cell[d=1]",
        "          case.facts said nothing; fail: other",
        "python runner.py selftest --fault 'strange\\x1b[31m'",
    ]


def test_totals_name_missed_and_red_by_others_apart() -> None:
    text = "\n".join(printed(200))
    assert "4 faults in 4 cells: 1 caught, 1 missed, 1 red by other checks only, 1 skipped; 12 s" in text
    assert "skipped, 1: needs a CUDA device" in text
    assert text.endswith("exit code 1: 2 of 4 not caught as they must be")


def test_the_others_are_a_line_each_and_only_if_asked_for() -> None:
    assert not any("good_one" in line for verbosity in (-1, 0) for line in printed(80, verbosity))
    lines = printed(80, 1)
    assert lines[0] == "caught    good_one                        state.unchanged  0.5 s"
    assert lines[1].startswith("skipped   gpu_one ")
    assert lines[2].startswith("missed ")


def test_quiet_is_a_line_for_each_that_was_not_caught() -> None:
    lines = printed(80, -1)
    assert [line.split()[:2] for line in lines[: lines.index("")]] == [
        ["missed", "missed_one"],
        ["other", "strange\\x1b[31m"],
    ]


def test_cells_of_one_fault_are_told_apart_to_their_last_character() -> None:
    ids = [f"toy_linear[provider=reference+leaky_exit,{'x' * 60},nesting={nesting}]" for nesting in ("flat", "deep")]
    page = Page(80)
    outcomes = [Outcome("leaky_exit", "x", one, "state.unchanged", End.CAUGHT, "why") for one in ids]
    put_outcomes(page, outcomes, verbosity=1, again=again)
    text = "".join(line.plain.strip() for line in page.lines)
    assert all(one in text for one in ids)


def test_json_holds_every_outcome() -> None:
    data = json.loads(as_json(OUTCOMES, {"exit_code": 1}))
    assert data["exit_code"] == 1
    assert [row["end"] for row in data["outcomes"]] == ["missed", "caught", "skipped", "other"]
    assert data["outcomes"][0]["seconds"] == 1.25


def test_plan_names_fault_check_and_cell() -> None:
    page = Page(80)
    plan_lines(page, [("leaky_exit", "state.unchanged", "toy[x]")])
    assert [line.plain for line in page.lines] == ["leaky_exit: state.unchanged", "  toy[x]"]
