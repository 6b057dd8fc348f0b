import time
from itertools import chain, combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.report.predicate import Predicate, Separator, Term, axis_text

AXES = {"recipe": ("a", "b", "c"), "nesting": ("flat", "deep"), "fullgraph": (True, False), "arch": ("cpu", "sm90")}
CELLS = [dict(zip(AXES, values, strict=True)) for values in product(*AXES.values())]


def find(members, greens, **options):
    return Separator(greens, known=[*members, *greens]).smallest(members, **options)


def all_predicates(size):
    """Every conjunction of ``size`` terms over the small domain, by brute force."""
    for axes in combinations(AXES, size):
        for sets in product(*(subsets(AXES[axis]) for axis in axes)):
            yield [(axis, set(map(axis_text, values))) for axis, values in zip(axes, sets, strict=True)]


def subsets(values):
    return chain.from_iterable(combinations(values, size) for size in range(1, len(values) + 1))


def separates(predicate, members, greens):
    def holds(cell):
        return all(axis_text(cell[axis]) in values for axis, values in predicate)

    return all(map(holds, members)) and not any(map(holds, greens))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["red", "green", "neither"]), min_size=len(CELLS), max_size=len(CELLS)))
def test_it_separates_and_no_smaller_one_does(colours) -> None:
    members = [cell for cell, colour in zip(CELLS, colours, strict=True) if colour == "red"]
    greens = [cell for cell, colour in zip(CELLS, colours, strict=True) if colour == "green"]
    if not members:
        return
    found = find(members, greens)
    size = 4 if found is None else len(found.terms)
    for smaller in range(size):
        assert not any(separates(candidate, members, greens) for candidate in all_predicates(smaller))
    if found is not None:
        assert all(found.holds(cell) for cell in members)
        assert not any(found.holds(cell) for cell in greens)


def test_one_axis_value_is_one_term() -> None:
    members = [cell for cell in CELLS if cell["nesting"] == "deep"]
    greens = [cell for cell in CELLS if cell["nesting"] != "deep"]
    assert str(find(members, greens)) == "nesting=deep"


def test_a_single_value_is_preferred_to_a_set() -> None:
    members = [{"x": "1", "y": "a"}, {"x": "2", "y": "a"}]
    greens = [{"x": "3", "y": "b"}, {"x": "4", "y": "b"}]
    assert str(find(members, greens)) == "y=a"


def test_a_long_set_is_told_by_what_it_leaves_out() -> None:
    members = [cell for cell in CELLS if cell["recipe"] != "a"]
    greens = [cell for cell in CELLS if cell["recipe"] == "a"]
    assert str(find(members, greens)) == "recipe!=a"
    wide = [{"x": str(number)} for number in range(9)]
    assert str(find(wide[2:], wide[:2])) == "x not in {0, 1}"
    assert str(find(wide[:2], wide[2:])) == "x in {0, 1}"


def test_the_text_with_a_negation_is_true_of_no_other_red() -> None:
    members, greens = [{"x": "1"}, {"x": "2"}], [{"x": "3"}]
    others = [{"x": "4"}, {"x": "5"}]
    found = Separator(greens, known=[*members, *greens, *others]).smallest(members)
    assert str(found) == "x in {1, 2}"


def test_none_when_a_green_has_the_same_axes() -> None:
    assert find([CELLS[0]], [CELLS[0], CELLS[5]]) is None


def test_none_when_it_would_take_more_terms() -> None:
    members = [{"a": 0, "b": 0, "c": 0, "d": 0}]
    greens = [{**members[0], axis: 1} for axis in "abcd"]
    assert find(members, greens) is None
    four = find(members, greens, max_terms=4)
    assert four is not None
    assert len(four.terms) == 4


def test_without_greens_it_says_so() -> None:
    found = find(CELLS[:3], [])
    assert found == Predicate(())
    assert "no green cell" in str(found)


def test_an_axis_that_not_all_members_have_is_not_used() -> None:
    found = find([{"a": 1, "b": 1}, {"a": 1}], [{"a": 2, "b": 2}])
    assert str(found) == "a=1"
    assert not Term("b", ("",)).holds({"a": 1})


CASES = [
    *({"case": "plain", "fullgraph": flag} for flag in (True, False)),
    *({"case": c, "fullgraph": f, "variant": v} for c in ("one", "two") for f in (True, False) for v in ("a", c)),
]


def scoped(members):
    greens = [cell for cell in CASES if cell not in members]
    return str(Separator(greens, known=CASES, scopes={"variant": "case"}).smallest(members))


def test_a_variant_is_named_with_its_case() -> None:
    assert scoped([cell for cell in CASES if cell.get("variant") == "one"]) == "case=one and variant=one"
    assert scoped([{"case": "two", "fullgraph": False, "variant": "two"}]) == (
        "case=two and fullgraph=false and variant=two"
    )


def test_a_variant_of_several_cases_or_in_a_run_of_one_case_needs_no_case() -> None:
    assert scoped([cell for cell in CASES if cell.get("variant") == "a"]) == "variant=a"
    alone = [{"case": "one", "variant": v} for v in "ab"]
    found = Separator(alone[1:], known=alone, scopes={"variant": "case"}).smallest(alone[:1])
    assert str(found) == "variant=a"


def test_an_axis_that_some_cells_lack_is_not_negated() -> None:
    """``variant!=a`` would be true of the cells of a case that has no variants, and those are green."""
    members = [{"variant": "b"}, {"variant": "c"}]
    others = [{"variant": "a"}, {"fullgraph": True}]
    assert str(find(members, others)) == "variant in {b, c}"
    assert str(Separator(others[:1], known=[*members, *others[:1]]).smallest(members)) == "variant!=a"


def test_values_are_written_as_in_yaml() -> None:
    assert axis_text(True) == "true"
    assert axis_text([64, 128, 128]) == "64x128x128"


def test_ten_thousand_greens_are_quick() -> None:
    greens = [{"recipe": f"r{i % 6}", "seed": i, "shape": i % 11, "nesting": f"n{i % 5}"} for i in range(10_000)]
    began = time.perf_counter()
    found = find([{"recipe": "r1", "seed": 10_001, "shape": 3, "nesting": "n9"}], greens)
    assert str(found) == "seed=10001"
    assert time.perf_counter() - began < 2
