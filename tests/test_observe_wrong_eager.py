"""Programs whose eager code is known to be wrong: its exception is kept apart, and ``sound`` stands in beside calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from harness.observe.session import observe_cell
from harness.observe.types import Observations
from harness.program import Program
from harness.providers.protocol import ProgramProvider
from harness.types import Evidence, Expectation
from tests.support.fake_provider import FakeProvider, builder
from tests.support.observing import CPU, axes

CELL = axes(backend="eager")


def observed(reason: str) -> Observations:
    """A program that raises in eager code alone, observed with ``reason`` as its word on that."""
    make = builder(CELL)

    def build(provider: ProgramProvider) -> Program:
        program = make(provider)
        right = program.forward

        def forward(recipes: Any, x: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_compiling():
                raise KeyError("eager")
            return right(recipes, x)

        expects = replace(program.expects, eager_is_wrong=reason, eager_error="KeyError")
        return replace(program, forward=forward, sound=right, expects=expects)

    return observe_cell(build, FakeProvider(), CELL, Evidence.NATIVE, "cpu", Expectation(), CPU)


def test_a_known_exception_is_kept_apart_and_the_rest_is_observed() -> None:
    obs = observed("a reason")
    assert obs.errors == ()
    assert [error.type for error in obs.eager_errors] == ["KeyError", "KeyError"]
    assert (obs.eager, obs.eager_again) == (None, None)
    assert obs.compiled is not None
    assert len(obs.later) == 11
    assert all(torch.equal(call.compiled.output, call.eager.output) for call in obs.later)


def test_without_that_word_it_is_an_error_like_any_other() -> None:
    obs = observed("")
    assert obs.eager_errors == ()
    assert {error.message for error in obs.errors} == {"'eager'"}
