"""harness.judge.calibrate_catalogue: no bound of the judge goes without a row."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import harness.judge
from harness.judge.calibrate_catalogue import BOUNDS, EQUALITIES, UNDECIDED, names
from harness.judge.numerics import CHECKS, judge_bench
from harness.judge.numerics_bench import Bench
from harness.observe.types import LaterCall
from tests.support.judge_stub import StubProvider, axes_for, observe
from tests.test_judge_numerics_bench import Noisy

JUDGE = Path(harness.judge.__file__).parent

# Where a bound is asked without being a bound of its own: the figures of a report, and whether noise is to be measured.
ASKED_AGAIN = {"numerics.summarise", "numerics_bench._explained"}
# Its outcome goes into ProductRun.met, which numerics_tap._source_faults tallies.
HANDED_ON = {"oracle_sites.resolve"}


def functions(module: str, source: str) -> Iterator[tuple[str, ast.AST]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            yield f"{module}.{node.name}", node


def callers(of: str, sources: dict[str, str]) -> set[str]:
    """Functions in which a function or method called ``of`` is called."""
    return {
        name
        for module, source in sources.items()
        for name, node in functions(module, source)
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and of in (getattr(call.func, "attr", ""), getattr(call.func, "id", ""))
    }


SOURCES = {path.stem: path.read_text() for path in JUDGE.glob("*.py") if not path.stem.startswith("calibrate")}


def unlisted(sources: dict[str, str]) -> set[str]:
    """Functions that hold something against a bound or for equal, and that no entry of the catalogue names."""
    asking = callers("meet", sources) | callers("compared", sources) | callers("within", sources)
    return asking - {entry.made_in for entry in (*BOUNDS, *EQUALITIES)} - ASKED_AGAIN - HANDED_ON


def test_every_comparison_in_the_code_is_listed_and_every_entry_is_in_the_code() -> None:
    assert unlisted(SOURCES) == set()
    shared = {"numerics_program._same"}  # equal bits under inductor too, in the rows of the two functions that call it
    assert {bound.made_in for bound in BOUNDS} == callers("meet", SOURCES) - shared
    assert {equal.made_in for equal in EQUALITIES} == callers("compared", SOURCES) - {"numerics_program.check_alpha"}


def test_a_new_comparison_is_seen() -> None:
    for line in ("within(a, b)", "bench.meet('numerics.new', 0.1, '', 'x')", "bench.compared('numerics.new', 'x')"):
        new = {"numerics_new": f"def check_new(bench, a, b):\n    return {line}\n"}
        assert unlisted({**SOURCES, **new}) == {"numerics_new.check_new"}


def test_names_are_distinct_and_belong_to_checks() -> None:
    listed = list(names())
    assert len(listed) == len(set(listed))
    assert {check for check, _ in listed} == set(CHECKS)


def test_runs_tally_under_these_names_only() -> None:
    cell = axes_for(nesting="nested", backend="inductor")
    seen = observe(cell, StubProvider(), Noisy())
    assert seen.eager is not None
    assert seen.compiled is not None
    later = LaterCall("steady 1", True, seen.compiled.steps[0], seen.eager.steps[0], 1, seen.batches[0])
    bench = Bench(replace(seen, later=(later,)), cell)
    assert judge_bench(bench).findings == ()
    assert set(bench.tallies) <= set(names())
    fast = {bound.name for bound in BOUNDS if "fast" in bound.name[1]}
    lacking = {("numerics.program", part) for part in ("output", "parameter gradient", "with measured noise")}
    lacking |= {(check, "parameter gradient") for check in ("numerics.eager", "numerics.later")}
    assert {bound.name for bound in BOUNDS} - set(bench.tallies) == fast | lacking
    assert all(tally.count > 0 for tally in bench.tallies.values())
    assert {equal.name for equal in EQUALITIES} - set(bench.tallies) == {
        ("numerics.eager", "bits"),
        ("numerics.later", "bits"),
    }


def test_equal_bits_are_counted_where_they_are_asked_for() -> None:
    cell = axes_for(nesting="flat", backend="aot_eager")
    bench = Bench(observe(cell, StubProvider(), StubProvider()), cell)
    assert judge_bench(bench).findings == ()
    assert bench.tallies["numerics.eager", "bits"].count == 6  # output, input, two weights, two biases
    assert ("numerics.eager", "output") not in bench.tallies
    assert UNDECIDED not in bench.tallies
