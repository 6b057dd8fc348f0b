"""A matrix file from its path to a ``Matrix``, or every mistake in it at once."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from pydantic import ValidationError

from harness.plan.drafts import Source, draft_cells
from harness.plan.errors import MatrixError, MatrixErrors
from harness.plan.expand import finish_cells
from harness.plan.explain import explain, without_errors
from harness.plan.models import MatrixModel
from harness.plan.nearest import nearest
from harness.plan.scalars import describe
from harness.plan.targets import with_targets
from harness.plan.types import Matrix, make_plan
from harness.plan.yamlfile import MAX_BYTES, Place, YamlList, YamlMap, YamlText, YamlValue, decode, parse_yaml

REPOSITORY_CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def load_matrix(path: str | Path) -> Matrix:
    """The matrix at ``path``, looked up as given, then in ``configs/`` here, then in the repository's ``configs/``.

    Raises:
        MatrixErrors: everything that is wrong with the file and with the waiver files it names.
    """
    found, raw = _read_matrix(Path(path))
    return matrix_from_bytes(raw, found)


def matrix_from_bytes(raw: bytes, found: Path) -> Matrix:
    """The matrix in ``raw``, the content of the file ``found``; waiver files are relative to its directory.

    Raises:
        MatrixErrors: as ``load_matrix``.
    """
    file = _shown(found)
    document = parse_yaml(decode(raw, file), file)
    errors = list(document.errors)
    data = _mapping(document.value, file, found.parent, errors)
    model, sound, broken = _validate(data, errors)
    broken |= document.broken
    if model is None or broken & {"matrix", "defaults"}:
        raise with_targets(errors, data, found)
    source = Source(model, sound, problems=errors, broken=set(broken))
    cells = finish_cells(source, draft_cells(source))
    if not cells and not errors:
        errors.append(_no_cells(source))
    if errors:
        raise with_targets(errors, data, found)
    name = model.name if "name" in model.model_fields_set else found.stem
    return Matrix(file, name, model.require, make_plan(name, file, model.require, cells), model, data)


def read_document(path: str | Path, start: str) -> tuple[YamlMap, str]:
    """The mapping that another file than a matrix holds, looked up as a matrix is, and where it was found.

    Args:
        start: what is told of an empty file: how such a one starts.

    Raises:
        MatrixErrors: no such file, not YAML, not a mapping, a key given twice.
    """
    found, raw = _read_matrix(Path(path))
    file = _shown(found)
    document = parse_yaml(decode(raw, file), file)
    if document.errors:
        raise MatrixErrors(document.errors)
    return _top(document.value, file, start), file


def _no_cells(source: Source) -> MatrixError:
    if source.model.exclude:
        return source.place("exclude").error("no cells: every cell of the product is excluded")
    return source.place().error("no cells: list the values of an axis under matrix, or add cells under include")


def _read_matrix(path: Path) -> tuple[Path, bytes]:
    candidates = [path]
    if not path.is_absolute():
        candidates += [Path("configs") / path, REPOSITORY_CONFIGS / path]
    for candidate in candidates:
        raw = _read(candidate)
        if raw is not None:
            return candidate, raw
    tried = ", ".join(dict.fromkeys(_shown(candidate) for candidate in candidates))
    others = [one for directory in dict.fromkeys(one.parent for one in candidates) for one in _yaml_files(directory)]
    near = _nearest_file(path, others)
    raise MatrixErrors([MatrixError(str(path), 0, 0, f"no such file (tried {tried})", _shown(near) if near else None)])


def _nearest_file(path: Path, others: list[Path]) -> Path | None:
    near = nearest(path.stem, [one.stem for one in others])
    return next((one for one in others if one.stem == near), None)


def _read(path: Path) -> bytes | None:
    """The file's bytes, None when there is no such file; never more than a little over the size limit."""
    file = _shown(path)
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        raise MatrixErrors([MatrixError(file, 0, 0, "is a directory, not a matrix file", _the_one_in(path))]) from None
    except PermissionError:
        raise MatrixErrors([MatrixError(file, 0, 0, "no permission to read it")]) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise MatrixErrors([MatrixError(file, 0, 0, f"cannot be read: {reason}")]) from error


def _the_one_in(directory: Path) -> str | None:
    """The only file of a directory that starts as ours do; of several none can have been meant."""
    own = [str(one) for one in _yaml_files(directory) if one.is_file() and _is_ours(one)]
    return own[0] if len(own) == 1 else None


def _is_ours(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as stream:
        return re.search(rb"^schema_version\s*:", stream.read(MAX_BYTES), re.MULTILINE) is not None
    return False


def _yaml_files(directory: Path) -> list[Path]:
    try:
        return sorted(one for one in directory.iterdir() if one.suffix in (".yaml", ".yml"))
    except OSError:
        return []


def _shown(path: Path) -> str:
    """Relative to the working directory where it lies below it, which is what editors and terminals can open."""
    try:
        return os.path.relpath(path) if path.is_absolute() and path.is_relative_to(Path.cwd()) else str(path)
    except (OSError, ValueError):
        return str(path)


def _mapping(value: YamlValue | None, file: str, directory: Path, errors: list[MatrixError]) -> YamlMap:
    """The document as a mapping, with the entries of its waiver files in place of their paths."""
    top = _top(value, file)
    waivers = top.get("waivers")
    if isinstance(waivers, YamlList):
        top["waivers"] = _with_waiver_files(waivers, directory, errors)
    return top


def _top(value: YamlValue | None, file: str, start: str = "a matrix starts with schema_version: 1") -> YamlMap:
    if value is None or (isinstance(value, YamlText) and value.is_null):
        raise MatrixErrors([MatrixError(file, 1, 1, f"is empty: {start}")])
    if not isinstance(value, YamlMap):
        raise MatrixErrors([value.place.error(f"expected a mapping (schema_version: 1, …), got {describe(value)}")])
    return value


def _with_waiver_files(items: YamlList, directory: Path, errors: list[MatrixError]) -> YamlList:
    """The entries, each path replaced by the entries of its file."""
    result = YamlList(items.place)
    for item in items:
        if not isinstance(item, YamlText) or item.is_null:
            result.append(item)
            continue
        try:
            entries = _read_waivers(directory / str(item), item.place, errors)
        except MatrixErrors as error:
            errors.extend(error.errors)
        else:
            result.extend(entries)
    return result


def _read_waivers(path: Path, place: Place, errors: list[MatrixError]) -> list[YamlValue]:
    file = _shown(path)
    raw = _read(path)
    if raw is None:
        suggested = _nearest_file(path, _yaml_files(path.parent))
        raise MatrixErrors([place.error(f"no such waiver file: {file}", suggested.name if suggested else None)])
    document = parse_yaml(decode(raw, file), file)
    errors.extend(document.errors)
    value = document.value
    if value is None or (isinstance(value, YamlText) and value.is_null):
        return []
    if not isinstance(value, YamlList):
        raise MatrixErrors([value.place.error(f"expected a list of waivers, got {describe(value)}")])
    return list(value)


def _validate(data: YamlMap, errors: list[MatrixError]) -> tuple[MatrixModel | None, YamlMap, frozenset[str]]:
    """The model of what holds no errors (None: nothing is left), its data, and the sections that lost something."""
    try:
        return MatrixModel.model_validate(data), data, frozenset()
    except ValidationError as error:
        errors.extend(explain(error, data))
        sound, broken = without_errors(data, error)
    try:
        return MatrixModel.model_validate(sound), sound, broken
    except ValidationError:
        return None, data, broken
