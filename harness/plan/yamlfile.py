"""YAML text to plain values that remember where they stand and how they were written.

PyYAML's own constructors are not used: they turn ``on`` into True, ``2.10`` into 2.1 and ``9_0`` into 90, and let the
second of two equal keys win. Here a scalar stays the text that the user wrote, and the field that it is given to
decides what it may be (``harness/plan/scalars.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Union

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from harness.plan.errors import MatrixError, MatrixErrors
from harness.plan.nearest import quoted

MAX_BYTES = 1 << 20
MAX_DEPTH = 32  # a matrix needs seven levels
MAX_VALUES = 100_000  # after aliases are expanded: nine lines of aliases of aliases can stand for a billion values

_DEFAULT_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))  # YAML 1.2.2, 10.3.2 "Tag Resolution" of the core schema


@dataclass(frozen=True)
class Place:
    """A position in a file; ``line`` and ``column`` count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def short(self) -> str:
        """Without the directory, for tables."""
        return f"{PurePath(self.file).name}:{self.line}:{self.column}"

    def error(self, message: str, nearest: str | None = None) -> MatrixError:
        return MatrixError(self.file, self.line, self.column, message, nearest)


class YamlText(str):
    """A scalar as written. ``plain`` is False for quoted and block scalars, which are always text."""

    place: Place
    plain: bool

    def __new__(cls, text: str, place: Place, plain: bool = True) -> YamlText:
        self = super().__new__(cls, text)
        self.place = place
        self.plain = plain
        return self

    @property
    def is_null(self) -> bool:
        return self.plain and str(self) in _NULLS


class YamlMap(dict[str, "YamlValue"]):
    """A mapping with the place of each key."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.key_places: dict[str, Place] = {}


class YamlList(list["YamlValue"]):
    """A sequence; its items know their own places."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place


YamlValue = Union[YamlText, YamlMap, YamlList]


def decode(raw: bytes, file: str) -> str:
    """UTF-8 text, with or without a byte order mark.

    Raises:
        MatrixErrors: too large, or not UTF-8 (with the position of the first wrong byte).
    """
    if len(raw) > MAX_BYTES:
        raise MatrixErrors([MatrixError(file, 0, 0, f"larger than {MAX_BYTES} bytes, which no matrix needs")])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8", errors="replace")
        place = _place_of_index(before, len(before), file)
        raise MatrixErrors([place.error(f"not UTF-8: byte 0x{raw[error.start]:02x}")]) from error


@dataclass(frozen=True)
class Document:
    """A document's value (None: it has none), what is wrong with its keys and tags, and under which top-level keys."""

    value: YamlValue | None
    errors: tuple[MatrixError, ...] = ()
    broken: frozenset[str] = frozenset()


def parse_yaml(text: str, file: str) -> Document:
    """The one document of ``text``.

    Raises:
        MatrixErrors: not YAML, more than one document, nested or expanded beyond the limits above.
    """
    node = _compose(text, file)
    if node is None:
        return Document(None)
    builder = _Builder(file)
    value = builder.build(node)
    return Document(value, tuple(builder.errors), frozenset(builder.broken))


class _Loader(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML's composer without implicit types (BaseResolver has none) and with a limit on nesting."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self._depth = 0

    def next_mark(self) -> Any:
        """Where the next event starts: a yaml.Mark."""
        return self.peek_event().start_mark  # type: ignore[no-untyped-call]

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self._depth >= MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=self.next_mark())
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


def _compose(text: str, file: str) -> yaml.Node | None:
    try:
        loader = _Loader(text)
    except ReaderError as error:
        place = _place_of_index(text, error.position, file)
        raise MatrixErrors([place.error(f"not YAML: unprintable character U+{error.character:04X}")]) from error
    try:
        node = loader.get_node() if loader.check_node() else None
        if not loader.check_node():
            return node
        message = "a second YAML document starts here: a matrix is one document"
        mark = loader.next_mark()
    except yaml.MarkedYAMLError as error:
        message, mark = _problem(error), error.problem_mark or error.context_mark or loader.get_mark()
    except (ValueError, OverflowError):
        # PyYAML converts these without a check of its own: "\\UFFFFFFFF", and %YAML 1.9 with thousands of digits.
        message, mark = "not YAML: an escape or a version number out of range", loader.get_mark()
    raise MatrixErrors([Place(file, mark.line + 1, mark.column + 1).error(message)])


def _problem(error: yaml.MarkedYAMLError) -> str:
    problem = " ".join(part for part in (error.context, error.problem) if part)
    hint = " (indent with spaces)" if "'\\t'" in problem else ""
    return f"not YAML: {problem}{hint}"


class _Builder:
    """Nodes to values; duplicate keys, merge keys and tags are collected in ``errors``, not raised."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.errors: list[MatrixError] = []
        self.broken: set[str] = set()
        self._section = ""
        self._values = 0
        self._open: set[int] = set()

    def build(self, node: yaml.Node) -> YamlValue:
        place = self._place(node)
        self._values += 1
        if self._values > MAX_VALUES:
            raise MatrixErrors([place.error(f"stands for more than {MAX_VALUES} values once its aliases are expanded")])
        if node.tag not in _DEFAULT_TAGS:
            self._blame(place, f"tag {node.tag!r}: tags are not used here, write the plain value")
        if isinstance(node, yaml.ScalarNode):
            return YamlText(node.value, place, plain=node.style is None)
        if id(node) in self._open:
            raise MatrixErrors([place.error("an anchor that contains an alias of itself")])
        self._open.add(id(node))
        try:
            return self._build_map(node) if isinstance(node, yaml.MappingNode) else self._build_list(node)
        finally:
            self._open.remove(id(node))

    def _build_list(self, node: yaml.Node) -> YamlList:
        result = YamlList(self._place(node))
        result.extend(self.build(item) for item in node.value)
        return result

    def _build_map(self, node: yaml.MappingNode) -> YamlMap:
        result = YamlMap(self._place(node))
        for key_node, value_node in node.value:
            place, key = self._place(key_node), str(key_node.value)
            if len(self._open) == 1:
                self._section = key
            value = self.build(value_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self._blame(place, "a key must be a name, not a list or a mapping")
            elif key == "<<" and key_node.style is None:
                self._blame(place, "merge keys (<<) are not supported: write the keys out")
            elif key in result:
                self._blame(place, f"duplicate key {quoted(key)}, first given at line {result.key_places[key].line}")
            else:
                result[key] = value
                result.key_places[key] = place
        return result

    def _blame(self, place: Place, message: str) -> None:
        self.errors.append(place.error(message))
        self.broken.add(self._section)

    def _place(self, node: yaml.Node) -> Place:
        return Place(self.file, node.start_mark.line + 1, node.start_mark.column + 1)


def _place_of_index(text: str, index: int, file: str) -> Place:
    before = text[:index]
    return Place(file, before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1)
