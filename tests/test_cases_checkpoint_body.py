"""cases.checkpoint_body: what it says of checkpoints that lose arguments or random numbers, and of those that don't."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from cases.checkpoint_body import body_of_a_checkpoint
from harness.faults import FAULTS
from harness.probing import Probing
from harness.program import CaseContext
from harness.providers.reference import ReferenceProvider
from harness.registry import load
from harness.types import Axes, Evidence, Spec

CPU = torch.device("cpu")
GRADIENTS = "gradients of a keyword argument, "
DROPPED = "elements dropped in either of forward and recompute alone, "


def probed(provider: Any, recipe: str = "float8_current_scaling") -> Probing:
    axes = Axes("checkpoint", Spec("reference"), Spec(recipe), variant="own_around", shape=(32, 64, 32))
    ctx = CaseContext(provider, axes, None, CPU, torch.bfloat16)
    with torch.random.fork_rng():
        layer = provider.linear(64, 32, bias=True, dtype=torch.bfloat16, device=CPU)
    part = lambda moment: contextlib.nullcontext()  # noqa: E731
    probing = Probing(provider, axes, Evidence.NATIVE, "cpu", CPU, torch.bfloat16, part)
    body_of_a_checkpoint(ctx, layer)(probing)
    return probing


def wrong(probing: Probing) -> set[str]:
    return {fact.name for fact in probing.facts if fact.expected != fact.seen}


@pytest.mark.parametrize(("recipe", "ways"), [("mxfp8_block_scaling", 2), ("delayed_scaling", 1)])
def test_the_references_checkpoint_keeps_both(recipe: str, ways: int) -> None:
    probing = probed(ReferenceProvider(), recipe)
    assert (wrong(probing), len(probing.facts)) == (set(), 2 * ways)


def test_generators_are_left_as_they_were() -> None:
    before = torch.get_rng_state()
    probed(ReferenceProvider(), "delayed_scaling")
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("checkpoint_drops_keywords", {GRADIENTS + "eager", DROPPED + "eager"}),
        ("recompute_draws_anew", {DROPPED + "eager"}),
    ],
)
def test_what_a_checkpoint_loses_is_named(name: str, expected: set[str]) -> None:
    with load(FAULTS[name]).apply(ReferenceProvider()) as provider:
        assert wrong(probed(provider, "delayed_scaling")) == expected


def test_keywords_that_the_recompute_alone_loses_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness import fp8

    checkpoint = fp8.checkpoint

    def forgetting(function: Any, *args: Any, **kwargs: Any) -> Any:
        given = [kwargs, {"shift": kwargs["shift"]}]  # the forward's, then the recompute's
        return checkpoint(lambda *inner: function(*inner, **given.pop(0)), *args)

    monkeypatch.setattr(fp8, "checkpoint", forgetting)
    assert wrong(probed(ReferenceProvider(), "delayed_scaling")) == {GRADIENTS + "eager", DROPPED + "eager"}
