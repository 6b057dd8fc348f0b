"""Faults as they are loaded for a selftest: what is wrong with one is told at the place of whoever can mend it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.faults import FRONT_FAULTS, path_of
from harness.faults.fault import Fault, lacking
from harness.plan.errors import MatrixError
from harness.plan.nearest import nearest, unknown
from harness.plan.yamlfile import Place, YamlList, YamlMap, YamlText, YamlValue
from harness.providers.load import load_fault
from harness.registry import LoadError
from harness.run.run_dir import shown
from harness.selftest.checks import known_checks
from harness.selftest.models import registered


def asked_for(names: Iterable[str], errors: list[MatrixError]) -> list[str]:
    """Those of ``--fault`` that can be a fault's name; each of the others is an error."""
    known = registered()
    kept = []
    for name in dict.fromkeys(names):
        if path_of(name) is None and name not in FRONT_FAULTS:
            errors.append(MatrixError(f"--fault {name}", 0, 0, "no such fault", nearest(name, known)))
        else:
            kept.append(name)
    return kept


def loaded(names: Iterable[str], data: YamlMap, errors: list[MatrixError]) -> Mapping[str, Fault]:
    """The faults ``names`` that can be used; everything that is wrong with the others goes to ``errors``.

    Args:
        data: the selftest file, for the place that names a fault.
    """
    faults: dict[str, Fault] = {}
    for name in dict.fromkeys(names):
        try:
            fault = load_fault(name)
        except LoadError as error:
            place = _named_at(name, data)
            errors.append(place.error(str(error)) if place else MatrixError(f"--fault {name}", 0, 0, str(error)))
            continue
        wrong = list(_wrong(fault))
        errors += [at_fault(name, message, near) for message, near in wrong]
        if not wrong:
            faults[name] = fault
    return faults


def at_fault(name: str, message: str, near: str | None = None) -> MatrixError:
    """An error about the fault ``name`` itself, in the file and at the line that defines it."""
    module, _, attribute = str(path_of(name)).partition(":")
    file = getattr(sys.modules.get(module), "__file__", None) or module
    return MatrixError(str(shown(Path(file))), *_defined(file, attribute), f"fault {name}: {message}", near)


def _wrong(fault: Fault) -> Iterable[tuple[str, str | None]]:
    """(message, nearest) for each field that can't be what a fault needs."""
    if not isinstance(fault.where, Mapping):
        yield f"where must be a mapping of axes to values, got {fault.where!r}", None
    if not callable(fault.apply):
        yield f"apply must be a context manager of the provider, got {fault.apply!r}", None
    known = known_checks()
    if not isinstance(fault.caught_by, str) or fault.caught_by not in known:
        message, near = unknown("check", str(fault.caught_by), known)
        yield f"caught_by: {message}", near
    try:
        lacking(fault.needs, has_gpu=False)
    except ValueError as error:
        yield f"needs: {error}", None


def _named_at(name: str, data: YamlMap) -> Place | None:
    """Where the file names the fault."""
    faults, cross = data.get("faults"), data.get("cross")
    items: list[YamlValue | None] = list(faults) if isinstance(faults, YamlList) else [faults]
    if isinstance(cross, YamlList):
        items += [entry.get("fault") for entry in cross if isinstance(entry, YamlMap)]
    return next((item.place for item in items if isinstance(item, YamlText) and item == name), None)


def _defined(file: str, attribute: str) -> tuple[int, int]:
    """Line and column of the assignment to ``attribute`` in ``file``; (0, 0) where it isn't written so."""
    try:
        lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0, 0
    assigned = re.compile(rf"{re.escape(attribute)}\b\s*(:[^=]*)?=")
    return next(((number, 1) for number, line in enumerate(lines, 1) if assigned.match(line)), (0, 0))
