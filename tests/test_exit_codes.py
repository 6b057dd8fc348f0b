"""One number means the same of every command, and the table of the documentation says which."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from harness import exit_codes
from harness.cli import errors, main
from harness.detection import command
from harness.judge import calibrate
from harness.report.require import MEANINGS
from tests.support.running import ROOT

CODES = {"GOOD": 0, "RED": 1, "INTERRUPTED": 2, "INTERNAL": 3, "USAGE": 4, "NOTHING": 5}


def test_the_codes_are_those_that_scripts_rely_on() -> None:
    assert {name: getattr(exit_codes, name) for name in CODES} == CODES
    assert sorted(exit_codes.BY_RANK) == sorted(CODES.values()) == sorted(MEANINGS)


def test_every_command_has_the_same() -> None:
    assert (errors.USAGE_ERROR, errors.NOTHING_RAN, main.INTERRUPTED, main.INTERNAL_ERROR) == (4, 5, 2, 3)
    assert (command.GOOD, command.WORK, command.INTERRUPTED, command.USAGE, command.NOTHING) == (0, 1, 2, 4, 5)
    codes = (calibrate.GOOD, calibrate.BAD, calibrate.INTERRUPTED, calibrate.LOST, calibrate.USAGE, calibrate.NOTHING)
    assert codes == tuple(range(6))


@pytest.mark.parametrize(
    ("codes", "highest"),
    [
        ((), 0),
        ((0, 0), 0),
        ((0, 5), 5),
        ((5, 1), 1),
        ((1, 2), 2),
        ((2, 4), 4),
        ((4, 3), 3),
        ((0, -9), 3),
        ((1, 130), 3),
    ],
)
def test_which_outranks_which(codes: tuple[int, ...], highest: int) -> None:
    assert exit_codes.highest(codes) == highest


def test_an_interrupt_and_a_defect_are_told_apart_from_a_red(capsys: pytest.CaptureFixture[str]) -> None:
    def ends(error: BaseException) -> Callable[[], int]:
        def main() -> int:
            raise error

        return main

    assert exit_codes.guarded(lambda: 1) == 1
    assert exit_codes.guarded(ends(KeyboardInterrupt())) == 2
    assert exit_codes.guarded(ends(ZeroDivisionError("oh"))) == 3
    said = capsys.readouterr().err
    assert "ZeroDivisionError: oh" in said
    assert said.endswith("this is a defect of the harness: please report it with the text above\n")
    with pytest.raises(SystemExit, match="4"):  # a usage error has its code already
        exit_codes.guarded(ends(SystemExit(4)))


def test_the_table_of_the_documentation_has_a_row_for_each_code_and_a_column_for_each_command() -> None:
    text = (ROOT / "docs" / "running.md").read_text(encoding="utf-8").partition("## Exit codes")[2]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows[2:]] == [str(code) for code in sorted(CODES.values())]
    assert len({len(row) for row in rows}) == 1
    assert all(cell for row in rows for cell in row)
    named = " ".join(rows[0])
    for word in ("a run", "doctor", "selftest", "report", "schema", "detection", "calibrate"):
        assert re.search(rf"\b{word}\b", named), word
