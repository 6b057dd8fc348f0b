"""What holds for a cell of any evidence: pinned settings, the reset at its end, errors while building."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch

from harness.types import Evidence
from tests.support import fake_provider
from tests.support.fake_provider import FakeProvider
from tests.support.observing import Region, axes, observe


def test_pinned_settings_are_recorded_and_given_back() -> None:
    with torch._dynamo.config.patch(nested_graph_breaks=True):
        obs = observe(axes(backend="eager"))
        assert torch._dynamo.config.nested_graph_breaks is True
    assert obs.census is not None
    assert obs.census.config["dynamo.nested_graph_breaks"] is False
    assert obs.state_diffs == ()


def test_inductor_cell_rounds_as_eager_does_and_says_so() -> None:
    obs = observe(axes(backend="inductor"))
    assert obs.errors == ()
    assert obs.census is not None
    assert obs.census.config["inductor.emulate_precision_casts"] is True
    assert obs.census.backward_graphs == 1
    assert torch._inductor.config.emulate_precision_casts is False


def test_reset_that_replaces_the_singleton_is_named() -> None:
    class Swapping(FakeProvider):
        def reset(self) -> None:
            fake_provider.STATE = dataclasses.replace(fake_provider.STATE)
            super().reset()

    kept = fake_provider.STATE
    try:
        obs = observe(axes(backend="eager"), provider=Swapping())
    finally:
        fake_provider.STATE = kept
    assert [(d.moment, d.key) for d in obs.state_diffs if d.moment == "reset"] == [("reset", "state.id")]


def test_reset_that_forgets_a_key_is_named() -> None:
    class Forgetful(FakeProvider):
        def reset(self) -> None:
            self.leaked += 1
            super().reset()

    obs = observe(axes(backend="eager"), provider=Forgetful())
    assert ("after reset", "leaked") in {(d.moment, d.key) for d in obs.state_diffs}


def test_exception_while_building() -> None:
    def body(region: Region, layers: torch.nn.ModuleList) -> Callable[..., torch.Tensor]:
        raise ValueError("no such layer")

    for level in (Evidence.NATIVE, Evidence.TRACED, Evidence.NEGATIVE):
        obs = observe(axes(), body=body, level=level, arch="cpu" if level is Evidence.NATIVE else "sm90")
        (error,) = obs.errors
        assert (error.phase, error.message) == ("build", "no such layer")


def test_unknown_evidence_is_an_error_of_the_caller() -> None:
    with pytest.raises(KeyError):
        observe(axes(), level=Evidence.NONE)
