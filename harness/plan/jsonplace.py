"""Where a value stands in a JSON text: what ``json`` itself tells only of mistakes in the syntax."""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from harness.plan.yamlfile import Place

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
Step = str | int


class JsonPlaces:
    """Places in one text, which must be JSON already."""

    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def of(self, path: Sequence[Step]) -> Place:
        """The value that ``path`` leads to, or the last on the way that is there (a missing key: its object)."""
        offset = self._skip(0)
        for step in path:
            found = next((at for key, at in self._members(offset) if key == step), None)
            if found is None:
                break
            offset = found
        return self._place(offset)

    def elements(self, path: Sequence[Step]) -> list[Place]:
        """The members of the array or object that ``path`` leads to, in order; one walk for all of them."""
        offset = self._skip(0)
        for step in path:
            offset = next(at for key, at in self._members(offset) if key == step)
        return [self._place(at) for _, at in self._members(offset)]

    def doubled(self) -> tuple[str, Place] | None:
        """The first key that stands twice in one object, and where its second value stands."""
        found = self._doubled(self._skip(0))
        return None if found is None else (found[0], self._place(found[1]))

    def _doubled(self, offset: int) -> tuple[str, int] | None:
        seen: set[Step] = set()
        for key, at in self._members(offset):
            if key in seen:
                return str(key), at
            seen.add(key)
            inner = self._doubled(at)
            if inner is not None:
                return inner
        return None

    def _place(self, offset: int) -> Place:
        line = bisect.bisect_right(self._starts, offset)
        return Place(self._file, line, offset - self._starts[line - 1] + 1)

    def _skip(self, offset: int) -> int:
        match = _SPACE.match(self._text, offset)
        return match.end() if match else offset

    def _value(self, offset: int) -> tuple[Any, int]:
        """(value, offset behind it and any space)."""
        value, end = _DECODER.raw_decode(self._text, offset)
        return value, self._skip(end)

    def _members(self, offset: int) -> Iterator[tuple[Step, int]]:
        """(key or index, offset of the value); nothing for a scalar."""
        opening = self._text[offset]
        if opening not in "[{":
            return
        at, index = self._skip(offset + 1), 0
        while self._text[at] not in "]}":
            key: Step = index
            if opening == "{":
                key, at = self._value(at)
                at = self._skip(at + 1)  # behind the colon
            yield key, at
            _, at = self._value(at)
            at = self._skip(at + 1) if self._text[at] == "," else at
            index += 1
