"""Faults as they are loaded for a selftest: what is wrong with one is told at the place of whoever can mend it."""

from __future__ import annotations

import pkgutil
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.faults import FRONT_FAULTS, path_of
from harness.faults.fault import Fault
from harness.plan.errors import MatrixError
from harness.plan.nearest import nearest
from harness.plan.yamlfile import Place, YamlList, YamlMap, YamlText, YamlValue
from harness.providers.load import load_fault
from harness.registry import LoadError
from harness.run.run_dir import shown
from harness.selftest.fault_fields import planned, wrong_fields, wrong_where
from harness.selftest.models import unknown_fault


def asked_for(names: Iterable[str], errors: list[MatrixError]) -> list[str]:
    """Those of ``--fault`` that can be a fault's name; each of the others is an error."""
    kept = []
    for name in dict.fromkeys(names):
        if path_of(name) is None and name not in FRONT_FAULTS:
            errors.append(MatrixError("--fault", 0, 0, *unknown_fault(name)))
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
            place, (message, near) = _named_at(name, data), _why_not_loaded(name, error)
            errors.append(place.error(message, near) if place else MatrixError(f"--fault {name}", 0, 0, message, near))
            continue
        wrong = list(wrong_fields(fault))
        if wrong and not list(wrong_where(fault.where)):
            wrong += planned(fault, name)[1]
        errors += [at_fault(name, message, near) for message, near in wrong]
        if not wrong:
            faults[name] = fault
    return faults


def at_fault(name: str, message: str, near: str | None = None) -> MatrixError:
    """An error about the fault ``name`` itself, in the file and at the line that defines it."""
    module, _, attribute = str(path_of(name)).partition(":")
    file = getattr(sys.modules.get(module), "__file__", None) or module
    return MatrixError(str(shown(Path(file))), *_defined(file, attribute), f"fault {name}: {message}", near)


def _why_not_loaded(name: str, error: LoadError) -> tuple[str, str | None]:
    """``error`` in words, and the nearest name that could be loaded."""
    path, _, attribute = str(path_of(name)).partition(":")
    module, cause = sys.modules.get(path), error.__cause__
    if isinstance(cause, ModuleNotFoundError) and cause.name and f"{path}.".startswith(f"{cause.name}."):
        near = nearest(cause.name, _modules_beside(cause.name))
        told = f"no module {cause.name!r} in the working directory or on Python's path"
        return told, f"{near}{path.removeprefix(cause.name)}:{attribute}" if near else None
    if isinstance(cause, AttributeError) and module is not None:
        own = [one for one, value in vars(module).items() if isinstance(value, Fault)]
        near = nearest(attribute, own)
        others = f"; its faults: {', '.join(own)}" if own and not near else ""
        return f"{error}{others}", f"{path}:{near}" if near else None
    return str(error), None


def _modules_beside(name: str) -> list[str]:
    """Full names of the modules where ``name`` would have to be: in its package, else in the working directory."""
    package = name.rpartition(".")[0]
    where = getattr(sys.modules.get(package), "__path__", ()) if package else [str(Path.cwd())]
    return [one.name for one in pkgutil.iter_modules(where, prefix=f"{package}." if package else "")]


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
