"""docs/detection.md: written by the command, whole, and with every bound of the code in each machine's section."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from harness.faults import FAULTS
from harness.judge.calibrate import jobs_of
from harness.judge.calibrate_catalogue import BOUNDS, EQUALITIES, LARGEST_GOOD, Bound
from harness.judge.calibrate_table import replace_section
from harness.judge.verdict import CHECK_NAMES
from harness.registry import load

PAGE = (Path(__file__).parents[1] / "docs" / "detection.md").read_text()
EXPLAINED = PAGE.split("## Nearer than a factor of two, and why")[1].split("\n## ")[0]
SECTIONS = dict(re.findall(r"^<!-- calibration: (.+?) -->\n(.*?)^<!-- end of calibration: \1 -->\n", PAGE, re.M | re.S))


def tables(text: str) -> list[list[list[str]]]:
    """Tables of a text, each a list of rows, the head first and without the line below it.

    Raises:
        ValueError: a row has another number of cells than its head, or a table has no line of dashes.
    """
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
        if len({len(row) for row in rows}) != 1 or {cell.strip() for cell in rows[1]} != {"---"}:
            raise ValueError(f"not a table: {block[:200]}")
        found.append([[cell.strip() for cell in row] for row in (rows[0], *rows[2:])])
    return found


def lacking(text: str) -> list[Bound]:
    """Entries of the catalogue without a row in a section."""
    firsts = {row[0] for table in tables(text) for row in table}
    bounds = [bound for bound in BOUNDS if f"`{bound.name[0]}` {bound.name[1]}" not in firsts]
    return bounds + [equal for equal in EQUALITIES if f"`{equal.name[0]}` {equal.value}" not in firsts]


def test_the_page_has_a_section_of_the_cpu_whose_markers_are_whole() -> None:
    assert "CPU" in SECTIONS
    for machine, text in SECTIONS.items():
        assert replace_section(PAGE, machine, text) == PAGE
    assert PAGE.count("<!-- calibration: ") == PAGE.count("<!-- end of calibration: ") == len(SECTIONS)


@pytest.mark.parametrize("machine", SECTIONS)
def test_every_bound_of_the_code_has_a_row(machine: str) -> None:
    assert lacking(SECTIONS[machine]) == []


def test_a_missing_row_and_a_broken_table_are_seen() -> None:
    row = next(line for line in SECTIONS["CPU"].splitlines() if line.startswith("| `numerics.kernel` dgrad |"))
    assert [bound.name for bound in lacking(SECTIONS["CPU"].replace(row + "\n", ""))] == [("numerics.kernel", "dgrad")]
    with pytest.raises(ValueError, match="not a table"):
        tables(SECTIONS["CPU"].replace(row, row + " |"))


@pytest.mark.parametrize("machine", SECTIONS)
def test_figures_are_those_of_good_runs_and_a_near_one_is_explained(machine: str) -> None:
    (values,) = [table for table in tables(SECTIONS[machine]) if table[0][0] == "bound" and "headroom" in table[0]]
    for row in values[1:]:
        largest = [float(cell.rpartition(" · ")[2].lstrip("< ")) for cell in row[3:6] if cell != "–"]
        assert largest, row
        assert max(largest) <= LARGEST_GOOD or (max(largest) < 1 and f"**{row[0]}**" in EXPLAINED), row
        assert row[7] == "–" or re.match(r"`\w+\[provider=[\w,.=+-]+\]`: \S", row[7]), row
    assert re.search(r"[\d,]+ cells judged, 0 findings\.", SECTIONS[machine])


def test_every_command_of_the_page_asks_for_cells() -> None:
    commands = re.findall(r"^    (python -m harness\.judge\.calibrate .*?)(?:    #.*)?$", PAGE, re.M)
    assert len(commands) > len(SECTIONS)
    for command in commands:
        arguments = shlex.split(command)[3:]
        assert not {"--json", "--markdown"} & set(arguments)
    assert jobs_of([*shlex.split(commands[0])[3:], "--arch", "cpu"])


KINDS = ("kill matrix", "margins")


def measured(page: str, kind: str, machine: str = "CPU") -> str:
    """The section of that kind and machine."""
    return page.split(f"<!-- {kind}: {machine} -->\n", 1)[1].split(f"<!-- end of {kind}: {machine} -->", 1)[0]


def faults_in(section: str) -> set[str]:
    """The faults of all its tables whose lines begin with one."""
    heads = {"fault"}
    rows = [row for table in tables(section) if table[0][0] in heads for row in table[1:]]
    return {row[0].strip("`") for row in rows}


def test_every_fault_has_a_row_in_the_kill_matrix() -> None:
    """Names only: what the rows say is measured by the command, and a new fault asks for it to be run again."""
    assert faults_in(measured(PAGE, "kill matrix")) == set(FAULTS), "python -m harness.detection.kill --write"


def test_every_check_has_a_row_in_the_kill_matrix() -> None:
    (checks,) = [table for table in tables(measured(PAGE, "kill matrix")) if table[0][:2] == ["check", "kills alone"]]
    assert [row[0].strip("`") for row in checks[1:]] == list(CHECK_NAMES)


def test_every_fault_that_can_be_measured_has_its_margin() -> None:
    skipped = {name for name, path in FAULTS.items() if load(path).needs or load(path).caught_by not in CHECK_NAMES}
    assert faults_in(measured(PAGE, "margins")) >= set(FAULTS) - skipped, "python -m harness.detection.margins --write"


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_to_do(kind: str) -> None:
    machines = re.findall(rf"^<!-- {kind}: (.+?) -->$", PAGE, re.M)
    assert "CPU" in machines
    for machine in machines:
        section = measured(PAGE, kind, machine)
        assert replace_section(PAGE, machine, section, kind=kind) == PAGE
        assert "Work to do: none." in section


def test_a_fault_without_a_row_is_seen() -> None:
    section = measured(PAGE, "kill matrix")
    row = next(line for line in section.splitlines() if line.startswith("| `leaky_exit` |"))
    assert faults_in(section) - faults_in(section.replace(row + "\n", "")) == {"leaky_exit"}
