"""What holds for a cell of any evidence: pinned settings, the reset at its end, errors while building."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.observe.torch_settings import ending_here
from harness.observe.types import Observations
from harness.types import Evidence
from tests.support import fake_provider
from tests.support.fake_provider import FakeProvider
from tests.support.observing import Region, axes, observe, with_layers


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


class ResetsTensors(FakeProvider):
    """Its reset reads a tensor, which nothing can under a mode that refuses every operator."""

    def reset(self) -> None:
        super().reset()
        torch.ones(1).add(1)


class Refusing(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError("no operator may run")


def test_an_exception_between_parts_is_the_products_where_it_left_a_mode_active() -> None:
    mode = Refusing()  # type: ignore[no-untyped-call]

    def leaving(region: Region, layers: torch.nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        mode.__enter__()
        return x

    def run() -> Observations:
        return observe(axes(backend="eager"), body=with_layers(leaving), provider=ResetsTensors())

    with ending_here():
        obs = run()
    assert {error.message for error in obs.errors} == {"no operator may run"}
    assert "torch.dispatch_modes" in {item.key for item in obs.state_diffs}


def test_an_exception_between_parts_is_the_harnesss_where_torch_is_as_it_was() -> None:
    class Failing(FakeProvider):
        resets = 0

        def reset(self) -> None:
            self.resets += 1
            super().reset()
            if self.resets == 3:
                raise RuntimeError("a defect of the adapter")

    with pytest.raises(RuntimeError, match="a defect of the adapter"):
        observe(axes(backend="eager"), provider=Failing())
