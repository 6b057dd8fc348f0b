"""cases/hoisted.py: what is expected of an object that compiled code did not see being made, by mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cases.hoisted import REFUSAL, build, unavailable
from harness.judge.oracle_provider import OracleProvider
from harness.probing import NotAsDocumented
from harness.program import CaseContext, Program, Step
from harness.providers.reference import ReferenceProvider
from harness.types import Axes, Spec

OUTER, INNER = Spec("float8_current_scaling"), Spec("float8_block_scaling")
CPU = torch.device("cpu")


def program(variant: str, provider: ReferenceProvider | OracleProvider, *, fullgraph: bool = True) -> Program:
    axes = Axes("hoisted", Spec("reference"), OUTER, fullgraph=fullgraph, variant=variant, shape=(16, 32, 16))
    dtype = torch.bfloat16 if isinstance(provider, ReferenceProvider) else torch.float64
    return build(CaseContext(provider, axes, INNER, CPU, dtype))


def test_an_object_from_outside_is_refused_under_fullgraph_and_runs_eagerly_without() -> None:
    assert program("object", OracleProvider(torch.bfloat16)).expects.raises == REFUSAL
    fallback = program("object", OracleProvider(torch.bfloat16), fullgraph=False).expects
    assert fallback.raises is None
    assert (fallback.eager_frames, fallback.graph_breaks, fallback.graphs) == (2, 1, 2)


def test_the_other_variants_compile_whole() -> None:
    for variant in ("late", "decorator", "twice"):
        expects = program(variant, OracleProvider(torch.bfloat16)).expects
        assert (expects.raises, expects.graphs, expects.graph_breaks, expects.eager_frames) == (None, 1, 0, 0)


@pytest.mark.parametrize(
    "make", [ReferenceProvider, lambda: OracleProvider(torch.bfloat16)], ids=["reference", "oracle"]
)
def test_a_second_entry_is_refused_and_changes_nothing(make: type[ReferenceProvider]) -> None:
    provider = make()
    made = program("twice", provider)
    moments: list[str] = []
    x = torch.ones(16, 32, dtype=torch.bfloat16 if isinstance(provider, ReferenceProvider) else torch.float64)
    made.run(Step(0, made.forward, made.recipes(), (x,), unchanged=moments.append))
    assert moments == ["after a second entry inside the region", "after a second entry after the region"]


class Reusable:
    """A region as a class, in the way of Transformer Engine 2.20; ``lax`` refuses no second entry."""

    def __init__(self, make: Any, *, lax: bool = False) -> None:
        self.make, self.lax, self.open = make, lax, None

    def __enter__(self) -> None:
        if self.open is not None and not self.lax:
            raise RuntimeError("this region can't be entered more than once at a time")
        self.open = self.make()
        self.open.__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        region, self.open = self.open, None
        if region is not None:
            region.__exit__(*exc_info)


@pytest.mark.parametrize("lax", [False, True])
def test_an_object_that_can_be_entered_again_is_held_to_that(lax: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = ReferenceProvider()
    plain = provider.autocast
    monkeypatch.setattr(provider, "features", {"reusable_autocast": Reusable}, raising=False)
    monkeypatch.setattr(provider, "autocast", lambda **given: Reusable(lambda: plain(**given), lax=lax), raising=False)
    made = program("twice", provider)
    step = Step(0, made.forward, made.recipes(), (torch.ones(16, 32, dtype=torch.bfloat16),))
    if lax:
        with pytest.raises(NotAsDocumented, match="inside the region"):
            made.run(step)
        provider.reset()
    else:
        assert made.run(step).shape == (16, 32)


def test_only_regions_that_decorate_have_the_variant_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = ReferenceProvider()
    axes = {name: Axes("hoisted", Spec("reference"), OUTER, variant=name) for name in ("decorator", "twice")}
    assert [unavailable(provider, one, "cpu") for one in axes.values()] == ["", ""]
    monkeypatch.setattr(provider, "features", {}, raising=False)
    assert unavailable(provider, axes["decorator"], "cpu") == "reference has no decorating_autocast"
    assert unavailable(provider, axes["twice"], "cpu") == ""
