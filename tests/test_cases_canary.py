"""cases/canary: a fact's expectation by version of torch, and what a changed fact says. Its cell asks the facts
themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cases import canary
from cases.canary import table, tracing
from cases.canary.ground import TEXT, Ground, Refused, both_modes, raised, region, with_own_code
from cases.canary.table import FACTS, CanaryFact
from harness.probing import Probing
from harness.providers.reference import ReferenceProvider
from harness.types import Axes, Evidence, Spec

CPU = torch.device("cpu")
AXES = Axes("canary", Spec("reference"), Spec("float8_current_scaling"))


def fact(ask: Callable[[Ground], str], measured: Any = "as ever") -> CanaryFact:
    return CanaryFact("a fact", "a/source#1", ask, measured)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.11.0", "old"),
        ("2.12.1+cu130", "old"),
        ("2.13.0+cpu", "new"),
        ("2.13.0a0+gitabc", "new"),
        ("2.15.0.dev20261201", "new"),
    ],
)
def test_ranges_are_of_releases_and_the_last_one_is_open(version: str, expected: str) -> None:
    assert fact(lambda ground: "", {"<2.13": "old", ">=2.13": "new"}).expected(version) == expected


def test_a_version_in_no_range_is_told() -> None:
    assert fact(lambda ground: "", {">=2.13": "new"}).expected("2.11.0") == "not measured on torch 2.11.0"
    assert fact(lambda ground: "").expected("9.9") == "as ever"


def test_every_fact_has_a_name_and_a_source_and_ranges_without_a_gap() -> None:
    assert len({one.name for one in FACTS}) == len(FACTS) > 45
    for one in FACTS:
        assert one.source
        for version in ("2.11.0", "2.12.0", "2.13.0", "2.14.1", "2.20.0"):
            assert not one.expected(version).startswith("not measured")


def stated(monkeypatch: pytest.MonkeyPatch, *facts: CanaryFact) -> list[tuple[str, str]]:
    monkeypatch.setattr(canary, "FACTS", facts)
    part = lambda moment: contextlib.nullcontext()  # noqa: E731
    asked = Probing(ReferenceProvider(), AXES, Evidence.NATIVE, "cpu", CPU, torch.bfloat16, part)
    canary.replay(asked)
    assert all(fact.name == "a fact (a/source#1)" for fact in asked.facts)
    return [(fact.expected, fact.seen) for fact in asked.facts]


def test_a_changed_fact_and_one_that_raises_are_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(ground: Ground) -> str:
        raise RuntimeError("moved\nelsewhere")

    seen = stated(monkeypatch, fact(lambda ground: "as ever"), fact(lambda ground: "otherwise"), fact(broken))
    assert seen == [
        ("as ever", "as ever"),
        ("as ever", "otherwise"),
        ("as ever", "raised RuntimeError: moved"),
    ]


def test_facts_leave_torchs_generator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_rng_state()
    stated(monkeypatch, fact(tracing.other_thread))
    assert torch.equal(torch.get_rng_state(), before)


def test_how_a_call_ends() -> None:
    def refuses() -> None:
        raise Refused(TEXT)

    assert raised(lambda: 1) == "returned"
    assert raised(refuses) == "Refused"
    assert raised(refuses, TEXT) == "Refused with the text"
    assert raised(refuses, "another") == "Refused without the text"
    assert both_modes(lambda x: x + 1, torch.ones(1)) == "off: returned; on: returned"


def test_a_manager_with_code_of_its_own_is_the_same_region() -> None:
    copied = with_own_code(region)
    assert copied.__wrapped__.__code__ is not region.__wrapped__.__code__  # type: ignore[attr-defined]
    with copied("a"):
        assert canary.Holder.state.depth == 1
    assert canary.Holder.state.depth == 0


def test_a_few_facts_as_measured() -> None:
    """Those that take no time; the canary's own cell asks for all of them."""
    ground = Ground(ReferenceProvider(), CPU, torch.nn.ModuleList())
    chosen = [one for one in FACTS if one.name.startswith(("refusal by raise", "an open region", "API of"))]
    assert len(chosen) == 4
    for one in chosen:
        assert one.ask(ground) == one.expected(torch.__version__)


def test_only_the_reference_is_asked() -> None:
    provider = ReferenceProvider()
    assert canary.CASE.unavailable(provider, AXES, "cpu") == ""
    provider.name = "another"
    assert "the facts are torch's" in canary.CASE.unavailable(provider, AXES, "cpu")


def test_the_table_is_whole() -> None:
    """A fact that is written and not listed is never asked."""
    asked = {one.ask.__name__ for one in FACTS}
    for module in (table.counting, table.tracing):
        written = {
            name
            for name, item in vars(module).items()
            if callable(item)
            and getattr(item, "__module__", "") == module.__name__
            and getattr(item, "__annotations__", {}) == {"ground": "Ground", "return": "str"}
        }
        assert written - asked == set()
