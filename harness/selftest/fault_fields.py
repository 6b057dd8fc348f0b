"""What each field of a fault must be: a user's own file may hold anything, and all of it is told at once."""

from __future__ import annotations

import inspect
import json
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.faults.cell import cell_and_twin
from harness.faults.fault import Fault, lacking
from harness.plan.errors import MatrixErrors
from harness.plan.nearest import quoted, unknown
from harness.providers import PROVIDERS
from harness.selftest.checks import known_checks
from harness.types import Cell

Told = tuple[str, str | None]  # message, nearest valid name

_REPR = reprlib.Repr()  # short, and of an object whose own repr raises too
_REPR.maxother = 60
DECORATE = "decorate a generator with contextlib.contextmanager"


def wrong_fields(fault: Fault) -> Iterator[Told]:
    """(message, nearest) for each field that can't be what a fault needs. Imports torch."""
    for name, may_be_empty in (("name", False), ("breaks", False), ("report", True)):
        yield from _text(name, getattr(fault, name), may_be_empty)
    yield from _apply(fault.apply)
    yield from wrong_where(fault.where)
    yield from _caught_by(fault.caught_by)
    yield from _needs(fault.needs)
    yield from _providers(fault.providers)


def planned(fault: Fault, name: str) -> tuple[tuple[Cell, Cell] | None, Sequence[Told]]:
    """The fault's cell and its twin; or None, and why ``where`` names none. ``name``: as a provider's name holds it."""
    try:
        return cell_and_twin(fault, name), ()
    except MatrixErrors as error:
        told = "; ".join(
            f"{one.message} (did you mean {one.nearest}?)" if one.nearest else one.message for one in error.errors
        )
        return None, ((f"its cell (where) can't be planned: {told}", None),)
    except (TypeError, ValueError) as error:  # more cells than one
        return None, ((str(error), None),)


def _text(field: str, value: object, may_be_empty: bool) -> Iterator[Told]:
    if not isinstance(value, str):
        yield f"{field} must be text, got {_shown(value)}", None
    elif not value.strip() and not may_be_empty:
        yield f"{field} must not be empty", None


def _apply(value: Any) -> Iterator[Told]:
    if not callable(value):
        yield f"apply must be a context manager of the provider, got {_shown(value)}", None
        return
    if inspect.isgeneratorfunction(value):
        yield f"apply is a bare generator function: {DECORATE}", None
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # a callable of C, or one that hides it
        return
    try:
        signature.bind(None)
    except TypeError as error:
        yield f"apply must take the provider as its one argument: {error}", None


def wrong_where(value: object) -> Iterator[Told]:
    """What no matrix could hold of ``where``; axes and values that it could are for :func:`planned` to refuse."""
    if not isinstance(value, Mapping):
        yield f"where must be a mapping of axes to values, got {_shown(value)}", None
        return
    try:
        items = list(value.items())
    except Exception as error:  # a mapping of the user's own may do anything
        yield f"where can't be read: {type(error).__name__}: {error}", None
        return
    for axis, written in items:
        if not isinstance(axis, str):
            yield f"where: an axis is a name, got {_shown(axis)}", None
        try:
            json.dumps(written)
        except (TypeError, ValueError):
            kinds = "text, a number, true, false, a list or a mapping"
            yield f"where: {axis} must be what a matrix can hold ({kinds}), got {_shown(written)}", None


def _caught_by(value: object) -> Iterator[Told]:
    known = known_checks()
    if not isinstance(value, str) or value not in known:
        message, near = unknown("check", str(value), known)
        yield f"caught_by: {message}", near


def _needs(value: object) -> Iterator[Told]:
    if not isinstance(value, str):
        yield f"needs must be text, got {_shown(value)}", None
        return
    try:
        lacking(value, has_gpu=False)
    except ValueError as error:
        yield f"needs: {error}", None


def _providers(value: object) -> Iterator[Told]:
    if not isinstance(value, (tuple, list)):
        yield f"providers must be a tuple of providers' names, got {_shown(value)}", None
        return
    if not value:
        yield "providers must name one at least", None
    for name in value:
        if not isinstance(name, str) or name not in PROVIDERS:
            message, near = unknown("provider", str(name), PROVIDERS)
            yield f"providers: {message}", near


def _shown(value: object) -> str:
    return quoted(value) if isinstance(value, str) else f"{_REPR.repr(value)} ({type(value).__name__})"
