"""harness.detection.kill_table: every fault and every check has its line, and what is wrong is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.detection import kill_table
from harness.detection.journal import Journal
from harness.detection.kill_measure import Killed
from harness.detection.kill_table import JUSTIFIED, idle, kills_of, rows_of, section, sections, work, wrong
from harness.faults import FAULTS
from harness.judge.verdict import CHECK_NAMES
from harness.registry import load
from tests.support.kills import FAULT, journal, killed


def whole(*changed: Killed, skipped: tuple[tuple[str, str], ...] = ()) -> Journal[Killed]:
    """A journal of all faults in which every check kills something, but for what is changed."""
    records = {name: killed(name, load(path).caught_by) for name, path in FAULTS.items()}
    for one in changed:
        records[one.fault] = one
    first = next(iter(records.values()))
    if first.fault not in {one.fault for one in changed}:
        names = tuple(name for name in CHECK_NAMES if name != first.named)
        records[first.fault] = killed(first.fault, first.named, *names)
    for name, _ in skipped:
        del records[name]
    return journal(*records.values(), skipped=skipped)


def lines(text: str, heading: str) -> dict[str, list[str]]:
    """Rows of the table under a heading, by their first cell."""
    body = text.split(f"### {heading}\n\n", 1)[1].split("\n\n", 1)[0]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in body.splitlines()[2:]]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_a_whole_matrix_leaves_nothing_to_do() -> None:
    found = whole(skipped=(("hang", "the run's own word"),))
    assert work([found]) == []
    text = section([found])
    assert "Work to do: none." in text
    faults = lines(text, "Each fault")
    assert set(faults) == set(FAULTS) - {"hang"}
    assert faults[FAULT] == ["`numerics.scales` red", "**nothing**"]
    assert set(lines(text, "Each check")) == set(CHECK_NAMES)
    assert lines(text, "Not measured here") == {"hang": ["`run.timeout`", "the run's own word"]}
    assert "### Checks that kill nothing alone\n\nNone." in text
    assert list(sections([found])) == ["CPU"]


def test_others_that_see_a_fault_stand_there() -> None:
    one = killed(FAULT, "numerics.scales", "numerics.tap")
    assert lines(section([whole(one)]), "Each fault")[FAULT] == ["`numerics.scales` red", "`numerics.tap`"]
    kills = {entry.check: entry for entry in kills_of(rows_of([journal(one, killed("scale_wasted"))]))}
    assert kills["numerics.scales"].alone == (FAULT, "scale_wasted")
    assert kills["numerics.scales"].only == ("scale_wasted",)
    assert (kills["numerics.tap"].alone, kills["numerics.tap"].only) == ((FAULT,), ())
    assert kills["numerics.codes"].alone == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"alone": (), "together": ()}, "`numerics.scales` alone is green at seed 0"),
        ({"bare": "oom"}, "oom with no check at all"),
        ({"removed": ("numerics.tap",)}, "another answer alone than in company: `numerics.tap`"),
        ({"error": "ValueError: x", "alone": ()}, "ValueError: x"),
    ],
)
def test_what_is_wrong_is_work_to_do(changes: dict[str, Any], said: str) -> None:
    assert wrong(killed()) == ""
    one = replace(killed(), **changes)
    assert said in wrong(one)
    (line,) = work([whole(one)])
    assert line.startswith(f"`{FAULT}`: ")
    assert f"- {line}" in section([whole(one)])


def test_a_fault_seen_at_some_seeds_only_is_not_caught() -> None:
    blind = killed(seed=1, alone=("numerics.tap",), removed=("numerics.tap",), together=("numerics.tap",))
    found = whole(killed(FAULT, "numerics.scales", "numerics.tap"))
    found = replace(found, records=(*found.records, blind))
    assert lines(section([found]), "Each fault")[FAULT] == [
        "`numerics.scales` **red at 1 of 2 seeds**",
        "`numerics.tap`",
    ]
    assert len(work([found])) == 1
    kills = {entry.check: entry.alone for entry in kills_of(rows_of([found]))}
    assert FAULT not in kills["numerics.scales"]
    assert FAULT in kills["numerics.tap"]


def test_a_check_that_kills_nothing_needs_a_justification(monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(iter(FAULTS))
    found = whole(killed(first, load(FAULTS[first]).caught_by))  # sees no longer what every check sees
    unnamed = [name for name in CHECK_NAMES if name not in {load(path).caught_by for path in FAULTS.values()}]
    assert unnamed == idle(rows_of([found]))
    dead = unnamed[0]
    for justified, left, said in (({}, 1, "**none: work to do**"), ({dead: "because"}, 0, "because")):
        monkeypatch.setattr(kill_table, "JUSTIFIED", justified)
        wanted = f"`{dead}` kills nothing alone: it needs a fault, a justification, or to go"
        assert work([found]).count(wanted) == left
        assert lines(section([found]), "Checks that kill nothing alone")[dead] == [said]


def test_justifications_are_of_checks() -> None:
    assert set(JUSTIFIED) <= set(CHECK_NAMES)
    assert all(JUSTIFIED.values())


def test_a_later_run_replaces_an_earlier_one_and_machines_stay_apart() -> None:
    bad, good = whole(killed(alone=(), removed=(), together=())), journal(killed())
    assert len(work([bad])) == 1
    assert work([bad, good]) == []
    there = replace(good, header=replace(good.header, machine="GPU"))
    assert list(sections([bad, there])) == ["CPU", "GPU"]


def test_unregistered_faults_are_left_out_and_unmeasured_ones_named() -> None:
    found = journal(killed("long_gone"), killed())
    assert [row.fault for row in rows_of([found])] == [FAULT]
    assert "`hang` was not measured" in work([found])
    assert lines(section([found]), "Not measured here")["hang"][1] == "**not asked for**"
    with pytest.raises(ValueError, match="nothing was measured"):
        section([journal(killed("long_gone"))])


def test_a_cell_that_cant_run_here_is_no_fault_missed() -> None:
    one = killed(unavailable="no such library", alone=(), removed=(), together=())
    assert work([whole(one)]) == []
    text = section([whole(one)])
    assert FAULT not in lines(text, "Each fault")
    assert lines(text, "Not measured here")[FAULT] == ["`numerics.scales`", "no such library"]
