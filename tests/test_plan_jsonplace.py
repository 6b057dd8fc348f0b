from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.plan.jsonplace import JsonPlaces

TEXT = '{\n "a": [1, {"b": "x,]}\\"", "c": []}],\n\t"d" : {"e":\nnull}\n}\n'


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ((), (1, 1)),
        (("a",), (2, 7)),
        (("a", 0), (2, 8)),
        (("a", 1), (2, 11)),
        (("a", 1, "b"), (2, 17)),
        (("a", 1, "c"), (2, 32)),
        (("d", "e"), (4, 1)),
        (("a", 5), (2, 7)),  # the last that is there
        (("d", "none", "deeper"), (3, 8)),
        (("a", 0, "into a scalar"), (2, 8)),
    ],
)
def test_places(path: tuple[str | int, ...], place: tuple[int, int]) -> None:
    found = JsonPlaces(TEXT, "f.json").of(path)
    assert (found.file, found.line, found.column) == ("f.json", *place)


def test_elements_come_in_order() -> None:
    places = JsonPlaces('{"cells": [\n {"id": 1},\n\n {"id": 2}\n]}', "f").elements(("cells",))
    assert [(place.line, place.column) for place in places] == [(2, 2), (4, 2)]
    assert JsonPlaces('{"cells": []}', "f").elements(("cells",)) == []


def test_a_doubled_key_is_found_where_it_stands_again() -> None:
    found = JsonPlaces('{"a": {"b": 1, "c": 2,\n"b": 3}, "d": 4}', "f").doubled()
    assert found is not None
    assert (found[0], found[1].line, found[1].column) == ("b", 2, 6)
    assert JsonPlaces('{"a": {"b": 1}, "b": [{"b": 1}, {"b": 1}]}', "f").doubled() is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(VALUES, st.sampled_from([None, 1, "\t"]))
def test_every_value_is_found_again_at_its_place(value: object, indent: int | str | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    places, lines = JsonPlaces(text, "f"), text.split("\n")

    def check(inner: object, path: tuple[str | int, ...]) -> None:
        place = places.of(path)
        rest = "\n".join([lines[place.line - 1][place.column - 1 :], *lines[place.line :]])
        assert json.JSONDecoder().raw_decode(rest)[0] == inner
        members = inner.items() if isinstance(inner, dict) else enumerate(inner) if isinstance(inner, list) else ()
        for key, item in members:
            check(item, (*path, key))

    check(value, ())
