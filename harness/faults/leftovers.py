"""What a fault left replaced in the code it broke: seen, so that nothing else is judged in a process it has spoiled.

Compared with a snapshot from before the fault was applied, in every module that was there:

==========================  ============================================================================
of                          is told
==========================  ============================================================================
``harness``                 whatever modules and classes hold: functions, classes, constants
cases, libraries, torch     functions and classes alone, and not those that the library replaced itself:
                            libraries keep their state in modules and on classes
all of them                 code and defaults of functions
``harness``, cases          callables in tables (dictionaries) and on objects that modules hold
==========================  ============================================================================

Not seen: data inside objects (the provider's state and torch's settings are observed by each cell), operators
registered with torch's dispatcher, threads, files. A fault of the user's own therefore ends its process in any case
(``harness.run.execute``).
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

OWN = ("harness", "cases")
LIBRARIES = ("transformer_engine", "torch")
# Where a patch of torch's would be made; all of torch holds two hundred thousand names.
TORCH = (
    "torch",
    "torch.amp",
    "torch.autograd",
    "torch.autograd.function",
    "torch.compiler",
    "torch.library",
    "torch.nn",
    "torch.nn.functional",
    "torch.utils.checkpoint",
)
_PLAIN = (bool, int, float, str, bytes, tuple, frozenset, type(None))
_ABSENT = object()
Counts = Callable[[str, Any, Any], bool]


@dataclass(frozen=True)
class _Held:
    """What one owner held; ``now()``: what it holds today; ``counts(name, before, now)``: such a change is told."""

    label: str
    before: Mapping[Any, Any]
    now: Callable[[], Mapping[Any, Any]]
    counts: Counts


class Snapshot:
    """The code of the harness, of the library under test and of torch's public face, as it is now."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._held: list[_Held] = []
        for name, module in list(sys.modules.items()):
            if _is_looked_at(name) and isinstance(module, ModuleType):
                self._add(
                    name, module, _of(module), _counts_in_module if _root(name) == "harness" else _counts_in_library
                )
                for attribute, value in list(vars(module).items()):
                    self._add_value(f"{name}.{attribute}", value, _root(name))

    def left(self) -> tuple[str, ...]:
        """What was replaced, removed or added since, as ``harness.fp8.ops.multiply``, module by module."""
        return tuple(dict.fromkeys(name for held in self._held for name in _changed(held)))

    def _add_value(self, label: str, value: Any, root: str) -> None:
        # type() and not isinstance(): the latter asks objects for their __class__, and torch's deprecated ones warn.
        kind = type(value)
        if issubclass(kind, type):
            if _is_looked_at(str(value.__module__)):
                self._add_class(value)
        elif kind is FunctionType:
            self._add(label, value, lambda: _parts(value), _counts)
        elif root in OWN and kind is dict:
            self._add(label, value, lambda: value, _counts_if_code)
        elif root in OWN and _root(kind.__module__) in OWN and hasattr(value, "__dict__"):
            self._add(label, value, _of(value), _counts_on_object)

    def _add_class(self, cls: type) -> None:
        root, label = _root(cls.__module__), f"{cls.__module__}.{cls.__qualname__}"
        self._add(label, cls, _of(cls), _counts if root == "harness" else _counts_on_class)
        for name, value in list(vars(cls).items()):
            function = value.__func__ if type(value) in (staticmethod, classmethod) else value
            if type(function) is FunctionType:
                self._add_value(f"{label}.{name}", function, root)

    def _add(self, label: str, owner: object, now: Callable[[], Mapping[Any, Any]], counts: Counts) -> None:
        if id(owner) not in self._seen:
            self._seen.add(id(owner))
            self._held.append(_Held(label, dict(now()), now, counts))


def _root(module: str) -> str:
    return module.partition(".")[0]


def _is_looked_at(module: str) -> bool:
    if _root(module) == "torch":
        return module in TORCH or module.startswith("torch.nn.modules.")
    return _root(module) in (*OWN, *LIBRARIES)


def _of(owner: Any) -> Callable[[], Mapping[Any, Any]]:
    return lambda: vars(owner)


def _parts(function: FunctionType) -> Mapping[str, Any]:
    return {
        "__code__": function.__code__,
        "__defaults__": function.__defaults__,
        "__kwdefaults__": tuple((function.__kwdefaults__ or {}).items()),
    }


def _changed(held: _Held) -> Iterator[str]:
    now = held.now()
    for name in {**held.before, **now}:
        before, value = held.before.get(name, _ABSENT), now.get(name, _ABSENT)
        if not _same(before, value) and held.counts(str(name), before, value):
            yield f"{held.label}.{name}"


def _same(before: Any, now: Any) -> bool:
    if before is now:
        return True
    # Containers are compared by their items' identity: tensors and others have an == of their own.
    if type(before) is tuple and type(now) is tuple:
        return len(before) == len(now) and all(map(_same, before, now))
    return type(before) is type(now) and type(before) in _PLAIN and bool(before == now)


def _is_code(value: Any) -> bool:
    return callable(value) or type(value) in (staticmethod, classmethod, property)


def _counts(name: str, before: Any, now: Any) -> bool:
    return name != "__slotnames__"  # written by copyreg when an instance is first copied or pickled


def _counts_in_module(name: str, before: Any, now: Any) -> bool:
    """Dynamo writes names of its own into modules and takes them out again; an import adds a module to its package."""
    if before is _ABSENT:
        return hasattr(builtins, name)  # any other new name changes nothing
    return now is not _ABSENT or (not name.startswith("__") and getattr(before, "__name__", "") == name)


def _counts_in_library(name: str, before: Any, now: Any) -> bool:
    return (
        (_is_code(before) or hasattr(builtins, name)) and not _is_librarys(now) and _counts_in_module(name, before, now)
    )


def _counts_on_class(name: str, before: Any, now: Any) -> bool:
    return _counts_on_object(name, before, now) and not _is_librarys(now)


def _is_librarys(code: Any) -> bool:
    """Torch replaces some of its own when it first compiles, by what it defines itself."""
    defined = getattr(getattr(code, "__func__", code), "__globals__", {}).get("__name__", "")
    return _root(str(defined)) in LIBRARIES


def _counts_if_code(name: str, before: Any, now: Any) -> bool:
    return _is_code(before)


def _counts_on_object(name: str, before: Any, now: Any) -> bool:
    return _is_code(before) or (before is _ABSENT and _is_code(now))
