"""What judges a cell is the same afterwards, or the first thing that is not is named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from harness.faults import leftovers
from harness.faults.patching import patched
from harness.faults.seal import sealed
from harness.fp8 import ops
from harness.judge import numerics, verdict
from harness.observe import recorder
from harness.providers import load
from harness.run import execute, journal
from harness.types import Finding

SOURCE = """
LIMIT = 448.0
CHECKS = [len, max]
TABLE = {"rows": (1, [2])}

def check(a, factor=2.0, *, bias=0.0):
    return a * factor + bias

def made(bound):
    return lambda value: value < bound

BELOW = made(LIMIT)

class Check:
    tolerance = 1.0
    def run(self):
        return self
    @staticmethod
    def of(value):
        return value

ONE = Check()
"""
NAME = "harness.judge.made_for_seal"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType(NAME)
    exec(SOURCE, vars(module))
    monkeypatch.setitem(sys.modules, NAME, module)
    return module


def other(*_: object) -> float:
    return 0.0


EDITS: dict[str, Callable[[Any], Any]] = {
    "LIMIT": lambda m: setattr(m, "LIMIT", 240.0),
    "len": lambda m: setattr(m, "len", other),
    "check": lambda m: delattr(m, "check"),
    "CHECKS.2": lambda m: m.CHECKS.append(other),
    "CHECKS.0": lambda m: m.CHECKS.clear(),
    "TABLE.rows.1.0": lambda m: m.TABLE["rows"][1].pop(),
    "TABLE.more": lambda m: m.TABLE.update(more=1),
    "check.__code__": lambda m: setattr(m.check, "__code__", other.__code__),
    "check.__defaults__": lambda m: setattr(m.check, "__defaults__", (0.0,)),
    "check.__kwdefaults__.bias": lambda m: m.check.__kwdefaults__.update(bias=1.0),
    "BELOW.0.cell_contents": lambda m: setattr(m.BELOW.__closure__[0], "cell_contents", 0.0),
    "Check.tolerance": lambda m: setattr(m.Check, "tolerance", 9.0),
    "Check.of": lambda m: setattr(m.Check, "of", staticmethod(other)),
    "Check.of.__func__.__code__": lambda m: setattr(m.Check.of, "__code__", other.__code__),
    "Check.__call__": lambda m: setattr(m.Check, "__call__", other),
    "ONE.run": lambda m: setattr(m.ONE, "run", other),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_the_judge_is_named(made: ModuleType, name: str) -> None:
    edited = sealed()
    assert edited() == ""
    EDITS[name](made)
    assert edited() == f"{NAME}.{name}"


def test_another_module_in_the_place_of_one_is_named(made: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    edited = sealed()
    monkeypatch.setitem(sys.modules, NAME, ModuleType(NAME))
    assert edited() == NAME


HARMLESS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda m: None,
    "an equal value": lambda m: setattr(m, "LIMIT", float("448")),
    "a new name": lambda m: setattr(m, "fresh", other),
    "copyreg's notes": lambda m: setattr(m.Check, "__slotnames__", []),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_python_does_by_itself_is_no_edit(made: ModuleType, name: str) -> None:
    edited = sealed()
    HARMLESS[name](made)
    assert edited() == ""


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (numerics, "CHECKS"),
        (verdict, "judge_cell"),
        (execute, "judge_cell"),
        (execute, "_result"),
        (execute, "MAX_FINDINGS"),
        (leftovers.Snapshot, "left"),
        (load, "_applied"),
        (journal.JournalWriter, "write"),
        (Finding, "__str__"),
    ],
)
def test_the_judge_the_recorder_and_the_look_for_leftovers_are_sealed(owner: Any, name: str) -> None:
    edited = sealed()
    module = owner.__name__ if isinstance(owner, ModuleType) else f"{owner.__module__}.{owner.__qualname__}"
    with patched(owner, name, other):
        assert edited() == f"{module}.{name}"
    assert edited() == ""


@pytest.mark.parametrize(
    ("owner", "name"),
    [(ops, "multiply"), (recorder, "provider_state"), (execute, "observe_cell"), (execute, "_fp8")],
)
def test_what_a_fault_may_break_is_not(owner: Any, name: str) -> None:
    edited = sealed()
    with patched(owner, name, other):
        assert edited() == ""


def test_the_seal_itself_asks_nothing_that_can_be_replaced(made: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.faults import seal

    edited = sealed()
    made.CHECKS.clear()
    for name in ("sealed", "_looker", "is_judge", "JUDGES"):
        monkeypatch.setattr(seal, name, other)
    for name in ("vars", "type", "len"):
        monkeypatch.setattr(seal, name, other, raising=False)
    assert edited() != ""
