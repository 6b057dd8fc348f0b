from __future__ import annotations

from harness.baseline import BUDGETED, COUNTS, EVIDENCE_ORDER, BaselineCell, Environment
from harness.types import Budgets, Evidence
from tests.support.baselines import HERE, entry, use

H200 = Environment("sm90", "NVIDIA H200", {"torch": "2.11.0", "cuda": "13.0", "transformer_engine": "2.20.2"})


def test_an_environment_reads_as_one_line() -> None:
    assert str(H200) == "sm90 (NVIDIA H200), torch 2.11.0, cuda 13.0, transformer_engine 2.20.2"
    assert str(HERE) == "cpu, torch 2.13.0+cpu, cuda none"


def test_what_changed_is_named_and_what_did_not_is_not() -> None:
    newer = Environment("sm90", "NVIDIA H100", {"torch": "2.12.0", "cuda": "13.0", "triton": "3.6.0"})
    assert H200.changes(newer) == [
        "gpu NVIDIA H200 -> NVIDIA H100",
        "torch 2.11.0 -> 2.12.0",
        "triton none -> 3.6.0",
        "transformer_engine 2.20.2 -> none",
    ]
    assert H200.changes(H200) == []


def test_every_count_is_a_field_and_every_limit_a_budget() -> None:
    assert set(COUNTS) <= set(BaselineCell.__dataclass_fields__)
    assert set(BUDGETED) == set(Budgets.__dataclass_fields__)


def test_every_level_of_evidence_has_its_place() -> None:
    assert set(EVIDENCE_ORDER) == {level.value for level in Evidence}


def test_an_entry_is_found_by_its_line() -> None:
    known = use(entry(0), entry(1))
    assert known.place(entry(1).id) == "b.json:7"
    assert known.place("other") == "b.json"
