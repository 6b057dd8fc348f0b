"""A clean cell's observations, to be broken one field at a time."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from harness.judge.check import Judging
from harness.observe.types import (
    CallSeen,
    Census,
    ErrorSeen,
    Handles,
    Kept,
    LaterCall,
    Left,
    Observations,
    OperatorSeen,
    RunSeen,
    StepTensors,
)
from harness.program import Expects
from harness.providers.protocol import GemmRecord, Operand, TapRecord
from harness.types import Axes, Cell, Evidence, Expectation, Spec

OUTER = "float8_current_scaling"
INNER = "float8_block_scaling"
LINEARS = (OUTER, INNER, OUTER)


def record(recipe: str, product: str) -> TapRecord:
    """A tap record whose tensors don't matter to the check under test."""
    t = torch.zeros(1, 1)
    operand = Operand("input", "e4m3", (1, 1), t, t.to(torch.uint8), t)
    return TapRecord(recipe, product, "forward" if product == "fprop" else "backward", operand, operand, t, 0)


def clean_run(linears: tuple[str, ...] = LINEARS) -> RunSeen:
    forward = tuple(record(label, "fprop") for label in linears)
    backward = tuple(record(label, product) for label in reversed(linears) for product in ("dgrad", "wgrad"))
    step = StepTensors(torch.ones(1), {"input0": torch.ones(1)})
    return RunSeen((step,), forward + backward, {}, (0,) * len(forward + backward))


def clean_census() -> Census:
    return Census(frames_total=1, frames_ok=1, graphs=1, backward_graphs=1, calls=(CallSeen(3, 3),) * 12)


def clean_observations() -> Observations:
    native = GemmRecord("aten::_scaled_mm", "c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "fp8_native")
    return Observations(
        evidence=Evidence.NATIVE,
        arch="cpu",
        expects=Expects(LINEARS),
        eager=clean_run(),
        eager_again=clean_run(),
        compiled=clean_run(),
        census=clean_census(),
        gemms=(native,) * 9,
        later=(LaterCall("steady call", True, clean_run().steps[0], clean_run().steps[0]),) * 11,
        state_keys=12,
        kept=Kept(10, (Left(2, 4, "(1, 1) float32 on cpu"),), (512,) * 10, (Handles(4, 1),) * 5),
        operators=(OperatorSeen("lib::op", "(1,) float32", "(1,) float32"),),
        support=dict.fromkeys((OUTER, INNER), ("native", "", "")),
    )


def judging(expect: Expectation | None = None, **changes: Any) -> Judging:
    """The clean cell with some observations replaced; ``census={"graphs": 2}`` changes census fields."""
    obs = clean_observations()
    census = changes.pop("census", {})
    if census is None:
        changes["census"] = None
    elif census:
        changes["census"] = dataclasses.replace(obs.census, **census)
    axes_changes = changes.pop("axes", {})
    axes = dataclasses.replace(Axes("toy_linear", Spec("reference"), Spec(OUTER), nesting="nested"), **axes_changes)
    cell = Cell("toy_linear[...]", axes, Spec(INNER), expect or Expectation())
    return Judging(cell, dataclasses.replace(obs, **changes))


def error(phase: str, kind: str = "RuntimeError", message: str = "boom") -> ErrorSeen:
    return ErrorSeen(phase, kind, message, ((f"{kind}<Exception", message),), site="user.py:3")
