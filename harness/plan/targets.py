"""Targets that can't be there, said before anything runs and with their places in the matrix.

Nothing of the user's is imported: modules are looked for as Python looks for them, and read as text. What can't be
known like that (names made at run time, an exception at import) is left to the workers, which do import.
"""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from harness.plan.axes import is_target
from harness.plan.errors import MatrixError, MatrixErrors, SelectionError
from harness.plan.nearest import nearest
from harness.plan.types import Matrix, Plan
from harness.plan.yamlfile import YamlList, YamlMap, YamlText
from harness.types import Cell

# Sections of a matrix that give cells their axis values.
_GIVING = ("defaults", "matrix", "include", "adjust")
# A module that does one of these may have names that its text doesn't show.
_DYNAMIC = ("__getattr__", "globals", "setattr", "exec", "vars", "modules", "__dict__")

Fault = tuple[str, "str | None"]  # what is wrong, and the nearest name that would do


def check_targets(matrix: Matrix, plan: Plan) -> Plan:
    """``plan``, where every target that it names may be there.

    Raises:
        MatrixErrors: the targets that can't be, all of them, each where the matrix names it.
        SelectionError: one that ``--set`` named.
    """
    errors: list[MatrixError] = []
    for target in dict.fromkeys(cell.axes.target for cell in plan.cells if cell.axes.target):
        fault = fault_of(target, [Path.cwd(), Path(matrix.path).resolve().parent])
        if fault is None:
            continue
        places = [text.place for text in _written(matrix.data) if text == target]
        if not places or _is_set(plan.cells, target):
            raise SelectionError(f"--set target={target}: {fault[0]}", [fault[1]] if fault[1] else [])
        errors.append(places[0].error(*fault))
    if errors:
        raise MatrixErrors(errors)
    return plan


def with_targets(errors: Sequence[MatrixError], data: YamlMap, path: Path) -> MatrixErrors:
    """``errors`` of a matrix, and of all targets that it names those that can't be there, whether or not a cell can be
    made of them. One that something else is said of (that it is none, or not to be there) is not looked for."""
    told = {(error.file, error.line, error.column) for error in errors}
    found = []
    for text in dict.fromkeys(_written(data)):
        if is_target(text) and (text.place.file, text.place.line, text.place.column) not in told:
            fault = fault_of(text, [Path.cwd(), path.resolve().parent])
            found += [text.place.error(*fault)] if fault else []
    return MatrixErrors([*errors, *found])


def _is_set(cells: Sequence[Cell], target: str) -> bool:
    return any(cell.axes.target == target and cell.origin.get("target") == "--set" for cell in cells)


def _written(data: YamlMap) -> Iterator[YamlText]:
    """Every value under a key ``target`` of the sections that give values."""
    pending: list[Any] = [data.get(section) for section in _GIVING]
    while pending:
        value = pending.pop(0)
        if isinstance(value, YamlList):
            pending += value
        elif isinstance(value, YamlMap):
            named = value.get("target")
            for text in named if isinstance(named, YamlList) else [named]:
                if isinstance(text, YamlText):
                    yield text
            pending += [item for key, item in value.items() if key not in ("target", "when")]


def fault_of(target: str, directories: Sequence[Path]) -> Fault | None:
    """Why ``package.module:attribute`` can't be there; None where it is, or where only an import can tell.

    Args:
        directories: where modules are looked for before what is installed.
    """
    module, _, attribute = target.partition(":")
    spec, fault = _spec_of(module, [str(directory) for directory in directories])
    if fault is not None or spec is None:
        return fault
    if spec.origin is None or not spec.origin.endswith(".py"):
        return None
    file = Path(spec.origin)
    try:
        tree = ast.parse(file.read_bytes(), file.name)
    except SyntaxError as error:
        return f"{file.name}:{error.lineno}: {module} can't be imported: {error.msg}", None
    except (OSError, ValueError):
        return None
    if _is_dynamic(tree):
        return None
    first, _, rest = attribute.partition(".")
    names = _names_in(tree.body)
    if first not in names:
        return f"{file.name} has no {first}", _nearest_public(first, names)
    second = rest.partition(".")[0]
    inside = _names_of_class(tree, first) if second else None
    if inside is None or second in inside:
        return None
    near = _nearest_public(second, inside)
    return f"{file.name} has no {first}.{second}", f"{first}.{near}" if near else None


def _nearest_public(name: str, names: Iterable[str]) -> str | None:
    return nearest(name, [one for one in names if not one.startswith("_")])


def _names_of_class(tree: ast.Module, name: str) -> set[str] | None:
    """What a class has whose text says it all: without bases, keywords and decorators, bound once. Else None."""
    bound = [node for node in ast.walk(tree) if getattr(node, "name", None) == name]
    node = bound[0] if len(bound) == 1 else None
    if not isinstance(node, ast.ClassDef) or node not in tree.body or node.bases or node.keywords:
        return None
    if node.decorator_list or any(isinstance(n, ast.Name) and n.id == name and _stores(n) for n in ast.walk(tree)):
        return None
    given_later = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and _stores(n)}
    return {*_names_in(node.body), *given_later, *dir(type)}


def _stores(node: ast.Name | ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store)


def _spec_of(module: str, directories: list[str]) -> tuple[ModuleSpec | None, Fault | None]:
    """Where a module is, or why it is nowhere; neither where a package's own finder would have to say it."""
    top, *rest = module.split(".")
    spec = PathFinder.find_spec(top, [*directories, *sys.path]) or _installed(top)
    if spec is None:
        near = nearest(top, [found.name for found in pkgutil.iter_modules(directories)])
        places = "neither installed, nor in the working directory, nor beside the matrix"
        return None, (f"no module named {top!r}: {places}", near)
    name = top
    for part in rest:
        name, parent, inside = f"{name}.{part}", name, spec.submodule_search_locations
        if inside is None:
            if name in sys.modules or _has(spec.origin, b"sys.modules"):  # as os makes os.path
                return None, None
            return None, (f"no module named {name!r}: {parent} is no package", None)
        locations = [str(location) for location in inside]
        spec = PathFinder.find_spec(part, locations)  # by its last name: a namespace's parents needn't be imported
        if spec is None:
            if _extends_path(locations):
                return None, None
            near = nearest(part, [found.name for found in pkgutil.iter_modules(locations)])
            return None, (f"no module named {name!r}", f"{parent}.{near}" if near else None)
    return spec, None


def _installed(top: str) -> ModuleSpec | None:
    if top in sys.modules and sys.modules[top].__spec__ is None:
        return ModuleSpec(top, None)  # this process's own __main__ and the like: nothing is known of it
    return importlib.util.find_spec(top)


def _extends_path(locations: Iterable[str]) -> bool:
    """Whether a package's file looks elsewhere for modules, or there is none to ask."""
    files = [Path(location) / "__init__.py" for location in locations]
    return any(not file.is_file() or _has(str(file), b"__path__") for file in files)


def _has(file: str | None, text: bytes) -> bool:
    try:
        return file is not None and text in Path(file).read_bytes()
    except OSError:
        return False


def _names_in(body: Iterable[ast.AST]) -> set[str]:
    """Every name that statements at the top level may bind, in branches too."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            names |= _names_in(ast.iter_child_nodes(node))
    return names


def _is_dynamic(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", None)
        is_star = isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
        if name in _DYNAMIC or is_star or isinstance(node, (ast.Global, ast.Match)):
            return True
    return False
