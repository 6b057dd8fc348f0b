"""What a fault left replaced is seen wherever code stands; what libraries do to themselves is nobody's leftover."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from harness.faults.leftovers import Snapshot
from harness.faults.patching import patched
from harness.fp8 import ToyLinear, ops

SOURCE = """
LIMIT = 448.0
SHAPE = (1, 128)

def multiply(a, factor=2.0, *, bias=0.0):
    return a * factor + bias

class Base:
    scale = 1.0
    def forward(self, x):
        return x
    @staticmethod
    def helper(x):
        return x

class Layer(Base):
    pass

TABLE = {"fprop": multiply, "count": 0}
OBJECT = Layer()
__compiled_fn_1 = multiply
sub_require_0 = multiply
"""
NAME = "harness.made_for_leftovers"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType(NAME)
    exec(SOURCE, vars(module))
    monkeypatch.setitem(sys.modules, NAME, module)
    return module


def other(*_: object) -> float:
    return 0.0


def redefine(function: Any) -> None:
    function.__code__ = other.__code__


LEAVE: dict[str, Callable[[Any], Any]] = {
    "multiply": lambda m: setattr(m, "multiply", other),
    "LIMIT": lambda m: setattr(m, "LIMIT", 240.0),
    "SHAPE": lambda m: setattr(m, "SHAPE", (1, 64)),
    "Layer": lambda m: setattr(m, "Layer", type("Layer", (), {})),
    "print": lambda m: setattr(m, "print", other),
    "Base": lambda m: delattr(m, "Base"),
    "Base.forward": lambda m: setattr(m.Base, "forward", other),
    "Base.scale": lambda m: setattr(m.Base, "scale", 2.0),
    "Base.helper": lambda m: setattr(m.Base, "helper", staticmethod(other)),
    "Layer.forward": lambda m: setattr(m.Layer, "forward", other),
    "Layer.__call__": lambda m: setattr(m.Layer, "__call__", other),
    "multiply.__code__": lambda m: redefine(m.multiply),
    "Base.forward.__code__": lambda m: redefine(m.Base.forward),
    "multiply.__defaults__": lambda m: setattr(m.multiply, "__defaults__", (1.0,)),
    "multiply.__kwdefaults__": lambda m: m.multiply.__kwdefaults__.update(bias=1.0),
    "TABLE.fprop": lambda m: m.TABLE.update(fprop=other),
    "OBJECT.forward": lambda m: setattr(m.OBJECT, "forward", other),
}


@pytest.mark.parametrize("name", LEAVE)
def test_what_is_left_replaced_is_told_by_its_name(made: ModuleType, name: str) -> None:
    before = Snapshot()
    LEAVE[name](made)
    assert f"{NAME}.{name}" in before.left()


class _Library:
    """What a library's module may hold: code, and state that it moves about."""

    state: Any = None
    count = 0

    def forward(self) -> int:
        return 1


@pytest.mark.parametrize("name", ["cases.made_for_leftovers", "transformer_engine.made_for_leftovers"])
def test_of_cases_and_libraries_code_is_told_and_state_is_not(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    library = type("Library", (_Library,), {"__module__": name, "state": None, "count": 0, "own": lambda self: 1})
    module = ModuleType(name)
    vars(module).update(Library=library, run=other, calls=0, LIMIT=448.0, sub_require_0=other)
    monkeypatch.setitem(sys.modules, name, module)
    before = Snapshot()
    library.state, library.count = object(), 3  # type: ignore[attr-defined]
    vars(module).update(calls=1, LIMIT=240.0, fresh=other)
    del vars(module)["sub_require_0"]
    assert before.left() == ()
    library.forward = redefine  # type: ignore[attr-defined]
    library.own = redefine  # type: ignore[attr-defined]
    vars(module).update(run=redefine, print=other)
    assert set(before.left()) == {f"{name}.run", f"{name}.print", f"{name}.Library.forward", f"{name}.Library.own"}


HARMLESS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda m: None,
    "an equal value": lambda m: setattr(m, "LIMIT", float("448")),
    "a new name": lambda m: setattr(m, "fresh", other),
    "an imported submodule": lambda m: setattr(m, "child", ModuleType("child")),
    "a name of Dynamo's": lambda m: delattr(m, "__compiled_fn_1"),
    "an alias of Dynamo's": lambda m: delattr(m, "sub_require_0"),
    "copyreg's notes": lambda m: setattr(m.OBJECT.__class__, "__slotnames__", []),
    "data in a table": lambda m: m.TABLE.update(count=1, more=2),
    "data of an object": lambda m: setattr(m.OBJECT, "calls", 1),
    "a data attribute shadowed": lambda m: setattr(m.OBJECT, "scale", 2.0),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_a_run_does_by_itself_is_not_told(made: ModuleType, name: str) -> None:
    before = Snapshot()
    HARMLESS[name](made)
    assert before.left() == ()


def test_what_is_put_back_is_not_told(made: ModuleType) -> None:
    before = Snapshot()
    with patched(made, "multiply", other), patched(made.Layer, "forward", other), patched(ops, "multiply", other):
        assert set(before.left()) == {f"{NAME}.multiply", f"{NAME}.Layer.forward", "harness.fp8.ops.multiply"}
    assert before.left() == ()


@pytest.mark.parametrize(
    ("owner", "name", "label"),
    [
        (torch, "matmul", "torch.matmul"),
        (torch.nn.functional, "linear", "torch.nn.functional.linear"),
        (torch.nn.Linear, "forward", "torch.nn.modules.linear.Linear.forward"),
        (torch.Tensor, "backward", "torch.Tensor.backward"),
        (ToyLinear, "forward", "harness.fp8.linear.ToyLinear.forward"),
    ],
)
def test_torch_and_the_library_are_looked_at(owner: Any, name: str, label: str) -> None:
    before = Snapshot()
    with patched(owner, name, other):
        assert label in before.left()
    assert before.left() == ()


def test_torch_may_replace_its_own() -> None:
    before = Snapshot()
    with patched(torch, "manual_seed", torch.nn.functional.relu):
        assert before.left() == ()


def test_another_library_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    library = ModuleType("some_library")
    vars(library)["run"] = other
    monkeypatch.setitem(sys.modules, "some_library", library)
    before = Snapshot()
    vars(library)["run"] = redefine
    assert before.left() == ()
