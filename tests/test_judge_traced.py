"""Which leaves must get a gradient in a traced step, and the shape of its output: the oracle's word."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cases.toy_linear import CASE
from harness.judge.traced import CHECK, expected_shapes, judge_traced
from harness.observe.types import Observations, TracedStep
from harness.program import CaseContext, NoOracle, Program
from harness.types import Axes, Evidence, Spec

AXES = Axes("toy_linear", Spec("reference"), Spec("mxfp8_block_scaling"), nesting="nested", dynamic=True)
INNER = Spec("float8_current_scaling")


def _rebuild(provider: Any) -> Program:
    return CASE.build(CaseContext(provider, AXES, INNER, torch.device("cpu"), torch.bfloat16))


def _observed(rebuild: Callable[[Any], Program] | None = _rebuild, **changed: tuple[int, ...] | None) -> Observations:
    """Two traced steps as they must be, the second one ``changed``: a shape of None takes the tensor away."""
    obs = Observations(Evidence.TRACED, "sm100", rebuild=_rebuild, traced=(TracedStep({}),) * 2)
    first, second = expected_shapes(obs, AXES)
    broken = {name: changed.get(name.replace(".", "_"), shape) for name, shape in second.items()}
    kept = {name: shape for name, shape in broken.items() if shape is not None}
    return dataclasses.replace(obs, rebuild=rebuild, traced=(TracedStep(first), TracedStep(kept)))


def test_a_step_with_the_gradients_of_the_oracles_program() -> None:
    assert judge_traced(_observed(), AXES) == ((), "")


def test_every_leaf_is_expected_in_the_rows_of_its_batch() -> None:
    first, second = (step.shapes for step in _observed().traced)
    assert set(first) == {"output", "input0"} | {f"layers.{i}.{p}" for i in range(3) for p in ("weight", "bias")}
    assert second["input0"][0] == 2 * first["input0"][0]
    assert second["layers.0.weight"] == first["layers.0.weight"]


@pytest.mark.parametrize(
    ("name", "shape", "got"),
    [
        ("input0", None, "no gradient of input0"),
        ("layers_1_bias", None, "no gradient of layers.1.bias"),
        ("output", (1, 2), "output (1, 2)"),
    ],
)
def test_a_step_that_differs_is_named(name: str, shape: tuple[int, ...] | None, got: str) -> None:
    (finding,), note = judge_traced(_observed(**{name: shape}), AXES)
    assert (finding.check, finding.got, finding.where, note) == (CHECK, got, "traced step 2", "")


def test_a_gradient_that_nothing_asks_for_is_named() -> None:
    obs = _observed()
    more = dataclasses.replace(obs.traced[0], shapes={**obs.traced[0].shapes, "input1": (2, 2)})
    (finding,), _ = judge_traced(dataclasses.replace(obs, traced=(more, obs.traced[1])), AXES)
    assert (finding.expected, finding.got) == ("no gradient of input1", "a gradient of input1 (2, 2)")


def test_a_program_that_the_oracle_cannot_run_is_noted() -> None:
    def refuse(provider: Any) -> Program:
        raise NoOracle("draws random numbers")

    findings, note = judge_traced(_observed(refuse), AXES)
    assert not findings
    assert note == "compile.gradients not judged, there is no oracle: draws random numbers"
    assert "can't be rebuilt" in judge_traced(_observed(None), AXES)[1]
