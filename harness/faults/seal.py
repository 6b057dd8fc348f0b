"""What judges a cell must be the same before a fault is applied and after: a judge that was told what to see proves
nothing.

Compared by identity, entry by entry: what the modules below hold, and within it code, defaults and closures of
functions, attributes of classes, items of tables. The comparing itself is made anew for each cell, of references taken
before the fault: it asks nothing of a module that the fault could have replaced.

Not seen: a fault that puts the judge back before it is looked at (before and after judging), one that alters objects it
found through the garbage collector, and code that was built into the interpreter. A fault is trusted not to forge.
"""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

# The judge; what it says its word with; and what applies faults, looks after them, and records.
JUDGES = (
    "harness.faults.fault",
    "harness.faults.leftovers",
    "harness.faults.seal",
    "harness.faults.stages",
    "harness.judge",
    "harness.providers.load",
    "harness.run.cell_process",
    "harness.run.execute",
    "harness.run.journal",
    "harness.run.watchdog",
    "harness.serialize",
    "harness.signature",
    "harness.types",
)
# A fault of the harness may break what is observed, and what is told of it beside the verdict.
OPEN = ("harness.run.execute._census", "harness.run.execute._fp8", "harness.run.execute.observe_cell")
# Written by Python itself when a class is first used.
_OF_PYTHON = ("__slotnames__", "_abc_impl", "__abstractmethods__", "__dict__", "__weakref__")
_ABSENT = object()
Edited = Callable[[], str]


def is_judge(module: str) -> bool:
    """True for a module that no fault may edit."""
    return module in JUDGES or module.startswith("harness.judge.")


def is_harness(module: str) -> bool:
    """True for every module of the harness."""
    return module.partition(".")[0] == "harness"


def sealed(which: Callable[[str], bool] = is_judge) -> Edited:
    """A function that names the first thing of the judge that is not what it was when this was called; empty if all
    of it is. ``which``: by name, the modules that are looked at."""
    modules = {name: module for name, module in list(sys.modules.items()) if which(name)}
    look = _looker(modules, {name: frozenset(vars(module)) for name, module in modules.items()})
    before, imported, absent = look(), sys.modules, _ABSENT
    plain = (bool, int, float, str, bytes)
    kind = type

    def edited() -> str:
        for name, module in modules.items():
            if imported.get(name) is not module:
                return name
        now = look()
        for label in {**before, **now}:
            was, value = before.get(label, absent), now.get(label, absent)
            same_scalar = kind(was) is kind(value) and kind(value) in plain and was == value
            if was is not value and not same_scalar:
                return label
        return ""

    return edited


def _looker(modules: dict[str, Any], names: dict[str, frozenset[str]]) -> Callable[[], dict[str, Any]]:
    """A function that returns everything ``modules`` hold, by label. Of names that were not there only those count
    that shadow a builtin. All that it calls is bound here."""
    of, kind, is_kind, identity, number, copied = vars, type, issubclass, id, enumerate, list
    shadowing, open_labels, of_python = frozenset(of(builtins)), OPEN, _OF_PYTHON
    function, cell, wrapped = FunctionType, CellType, (staticmethod, classmethod)
    property_kinds, cached, lru = property, functools.cached_property, type(functools.lru_cache(lambda: None))
    holds = hasattr
    tables, rows = dict, (list, tuple, set, frozenset)

    def parts(value: Any) -> list[tuple[Any, Any]]:
        """(name, part) of what a value consists of."""
        its = kind(value)
        if its is function:
            closure = (value.__closure__ or ()) if ours(value) else ()
            return [
                ("__code__", value.__code__),
                ("__defaults__", value.__defaults__),
                ("__kwdefaults__", value.__kwdefaults__),
                *number(closure),
            ]
        if its is cell:
            try:
                return [("cell_contents", value.cell_contents)]
            except ValueError:  # not filled yet
                return []
        if its in wrapped:
            return [("__func__", value.__func__)]
        if its is property_kinds:
            return [("fget", value.fget)]
        if its is cached:
            return [("func", value.func)]
        if its is lru:
            return [("__wrapped__", value.__wrapped__)]
        if is_kind(its, tables):
            return copied(value.items())
        if its in rows:
            return copied(number(value))
        if is_kind(its, kind):
            return [one for one in of(value).items() if one[0] not in of_python] if ours(value) else []
        return copied(of(value).items()) if ours(its) and holds(value, "__dict__") else []

    def ours(defined: Any) -> bool:
        return f"{defined.__module__}" in modules

    def walk(label: str, value: Any, found: dict[str, Any], seen: set[int]) -> None:
        found[label] = value
        if identity(value) not in seen:
            seen.add(identity(value))
            for name, part in parts(value):
                walk(f"{label}.{name}", part, found, seen)

    def look() -> dict[str, Any]:
        found: dict[str, Any] = {}
        seen: set[int] = set()
        for module_name, module in modules.items():
            for name, value in copied(of(module).items()):
                label = f"{module_name}.{name}"
                if (name in names[module_name] or name in shadowing) and label not in open_labels:
                    walk(label, value, found, seen)
        return found

    return look
