"""A baseline's file: what is written is read back, and everything that is wrong with one is named with its place."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.baseline import COUNTS, EVIDENCE_ORDER, Baseline, BaselineCell, Environment
from harness.plan import PlanError, render_plan
from harness.plan.baseline import baseline_from_text, baseline_text, baseline_use, read_baseline, with_baseline
from harness.types import Budgets
from tests.support.baselines import HERE, entry, planned_use, small_plan

GOOD = baseline_text(Baseline("m", HERE, (entry(0), entry(1))))


def error_of(text: str) -> str:
    with pytest.raises(PlanError) as caught:
        baseline_from_text(text, "b.json")
    return str(caught.value)


def test_one_line_for_each_cell_sorted_by_id() -> None:
    text = baseline_text(Baseline("m", HERE, (entry(2), entry(0), entry(1))))
    assert text == baseline_text(Baseline("m", HERE, (entry(0), entry(1), entry(2))))
    lines = text.splitlines()
    assert [line.split('"')[3] for line in lines if '"id"' in line] == [entry(seed).id for seed in range(3)]
    assert "environment" not in "".join(lines[5:])
    assert baseline_from_text(text, "b.json").lines == {entry(0).id: 6, entry(1).id: 7, entry(2).id: 8}


def test_an_empty_baseline_is_one() -> None:
    text = baseline_text(Baseline("m", HERE, ()))
    assert baseline_from_text(text, "b.json").baseline == Baseline("m", HERE, ())


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
COUNT = st.none() | st.integers(0, 10**6)
ENVIRONMENTS = st.builds(
    Environment, st.sampled_from(["cpu", "sm90", "sm100"]), WORDS, st.dictionaries(WORDS, WORDS, max_size=3)
)
CELLS = st.builds(
    BaselineCell,
    id=WORDS,
    arch=WORDS,
    verdict=st.sampled_from(["pass", "xfail", "skip"]),
    evidence=st.sampled_from(EVIDENCE_ORDER),
    fp8_judged=st.booleans(),
    fp8_gemms=COUNT,
    environment=st.none() | ENVIRONMENTS,
    **dict.fromkeys(COUNTS, COUNT),
)


@given(st.builds(Baseline, WORDS, ENVIRONMENTS, st.lists(CELLS, max_size=4, unique_by=lambda cell: cell.id)))
def test_what_is_written_is_read_back(baseline: Baseline) -> None:
    baseline = dataclasses.replace(baseline, cells=tuple(baseline.cells))
    text = baseline_text(baseline)
    found = baseline_from_text(text, "b.json")
    assert found.baseline == dataclasses.replace(baseline, cells=tuple(sorted(baseline.cells, key=lambda c: c.id)))
    assert baseline_text(found.baseline) == text
    for cell in baseline.cells:
        assert json.loads(text.split("\n")[found.lines[cell.id] - 1].strip().rstrip(","))["id"] == cell.id


def test_fields_of_a_newer_harness_are_ignored() -> None:
    newer = GOOD.replace('"graphs": 1', '"graphs": 1, "kernels": [3]').replace('"matrix"', '"made_by": "x", "matrix"')
    assert baseline_from_text(newer, "b.json").baseline == baseline_from_text(GOOD, "b.json").baseline


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "b.json:1:1: not JSON: expecting value"),
        (GOOD[:-8], "b.json:7:231: not JSON: expecting value"),
        ("[]", "b.json:1:1: not a baseline: no schema_version"),
        ("[" * 100_000, "b.json: not a baseline: maximum recursion"),
        (
            GOOD.replace("1,", "2,", 1),
            "b.json:2:20: schema_version 2 is not known (this version of the harness reads 1)",
        ),
        (GOOD.replace("1,", "true,", 1), "b.json:2:20: schema_version True is not known"),
        (GOOD.replace(' "matrix": "m",\n', ""), "b.json:1:1: matrix: missing"),
        (GOOD.replace('"graphs": 1, ', "", 1), "b.json:6:3: cells[0].graphs of toy_linear[seed=0]: missing"),
        (
            GOOD.replace('"graphs": 1', '"graphs": "1"', 1),
            "cells[0].graphs of toy_linear[seed=0]: input should be a valid",
        ),
        (GOOD.replace('"graphs": 1', '"graphs": true', 1), "input should be a valid integer, got 'True'"),
        (GOOD.replace('"graphs": 1', '"graphs": 1.5', 1), "b.json:6:"),
        (GOOD.replace('"graphs": 1', '"graphs": NaN', 1), "b.json:6:"),
        (GOOD.replace('"graphs": 1', '"graphs": -1', 1), "b.json:6:3: graphs of toy_linear[seed=0]: expected a count"),
        (GOOD.replace('"graphs": 1', '"graphs": 1, "graphs": 9', 1), "the key 'graphs' stands twice in one object"),
        (
            GOOD.replace('"pass"', '"fail"', 1),
            "b.json:6:58: cells[0].verdict of toy_linear[seed=0]: input should be 'pass'",
        ),
        (GOOD.replace('"native"', '"hearsay"', 1), "cells[0].evidence of toy_linear[seed=0]: input should be 'native'"),
        (GOOD.replace("seed=1", "seed=0"), "b.json:7:3: toy_linear[seed=0] stands twice (first on line 6)"),
        (
            GOOD.replace('"arch": "cpu"', '"arch": "host"', 1),
            "b.json:4:26: environment.arch: expected one of cpu, sm89",
        ),
        (
            GOOD.replace('"cells": [', '"cells": 5, "x": ['),
            "b.json:5:11: cells: input should be a valid array, got '5'",
        ),
        ('{"schema_version": 1, "cells": [7]}', "b.json:1:33: cells[0]: input should be an object, got '7'"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, message: str) -> None:
    assert message in error_of(text)


def test_all_mistakes_are_told_at_once() -> None:
    text = GOOD.replace('"graphs": 1', '"graphs": -1').replace('"arch": "cpu"', '"arch": "gpu"', 1)
    assert len(error_of(text).splitlines()) == 3


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.json").write_bytes(b'{"matrix": "\xe9"}')
    for name, message in (
        ("none.json", "no such baseline: make it with --update-baseline"),
        ("latin.json", "not UTF-8: byte 0xe9"),
        (".", "cannot be read: Is a directory"),
        ("a\0b", "cannot be read: embedded null byte"),
    ):
        with pytest.raises(PlanError, match=message):
            read_baseline(tmp_path / name)


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(GOOD)
    assert read_baseline(tmp_path / "b.json").baseline.cells == (entry(0), entry(1))


def test_limits_are_what_was_measured_and_say_where_they_come_from() -> None:
    plan = small_plan()
    use = planned_use(plan, {"recompiles": 2, "graph_breaks": 3, "graphs": None})
    first, second = with_baseline(plan, use).cells
    assert first.expect.budgets == plan.cells[0].expect.budgets
    assert first.expect.baseline == Budgets(graph_breaks=3, recompiles=2, eager_frames=0, graphs=None)
    assert first.origin["limits.recompiles"] == "baseline b.json"
    assert "limits.graphs" not in first.origin
    assert second == plan.cells[1]


@pytest.mark.parametrize("verdict", ["xfail", "skip"])
def test_only_cells_that_passed_are_limited(verdict: str) -> None:
    """A cell that fails as expected has no graphs: when it is mended it has one, which must not be red."""
    plan = small_plan()
    assert with_baseline(plan, planned_use(plan, {"verdict": verdict, "graphs": 0})).cells == plan.cells


def test_the_plan_shows_limits_beside_budgets() -> None:
    plan = small_plan()
    lines = render_plan(with_baseline(plan, planned_use(plan, {"recompiles": 2})).cells).splitlines()
    row = next(line for line in lines if line.startswith("limits.recompiles"))
    assert row.split() == ["limits.recompiles", "1", "at", "most", "2", "<-", "baseline", "b.json"]
    assert not any(line.startswith("limits.") for line in render_plan(plan.cells).splitlines())


def test_a_plan_with_limits_is_another_plan() -> None:
    plan = small_plan()
    assert with_baseline(plan, planned_use(plan, {})).digest != plan.digest
    assert with_baseline(plan, planned_use(plan)).digest == plan.digest


@pytest.mark.parametrize(
    ("matrix", "arch", "message"),
    [
        ("nightly", "cpu", "b.json: is the baseline of the matrix nightly, not of m (m.yaml)"),
        ("m", "sm90", "b.json: was measured on sm90, and this machine is cpu"),
    ],
)
def test_another_matrix_and_another_architecture_are_refused(matrix: str, arch: str, message: str) -> None:
    found = baseline_from_text(baseline_text(Baseline(matrix, Environment(arch), ())), "b.json")
    with pytest.raises(PlanError) as caught:
        baseline_use(found, "b.json", small_plan(), HERE)
    assert message in str(caught.value)


def test_another_version_of_torch_is_not_refused_and_cells_that_are_gone_are_known() -> None:
    older = Environment("cpu", "", {"torch": "2.11.0"})
    found = baseline_from_text(baseline_text(Baseline("m", older, (entry(7),))), "b.json")
    used = baseline_use(found, "b.json", small_plan(), HERE, "why")
    assert (used.gone, used.gone_because, used.here) == ((entry(7).id,), "why", HERE)
