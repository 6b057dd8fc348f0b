"""Observing cells of the fake provider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.observe.session import observe_cell
from harness.observe.types import Observations
from harness.program import Program
from harness.types import Axes, Evidence, Expectation, Raises, Spec
from tests.support.fake_provider import Body, FakeProvider, builder, flat

CPU = torch.device("cpu")
REFUSAL = Raises("NoCompile", "not supported under torch.compile")
Region = Callable[..., Any]


def axes(recipe: str = "float8_current_scaling", **values: Any) -> Axes:
    return Axes(case="fake", provider=Spec("fake"), recipe=Spec(recipe), **values)


def observe(
    cell: Axes,
    *,
    body: Body = flat,
    provider: FakeProvider | None = None,
    level: Evidence = Evidence.NATIVE,
    arch: str = "cpu",
    raises: Raises | None = None,
    case_raises: Raises | None = None,
    steps: int = 1,
    changes: Callable[[Program], Program] = lambda program: program,
) -> Observations:
    """``changes`` makes the observed program out of the usual one."""
    usual = builder(cell, body, steps=steps, raises=case_raises)

    def build(on: Any) -> Program:
        return changes(usual(on))

    return observe_cell(build, provider or FakeProvider(), cell, level, arch, Expectation(raises=raises), CPU)


def with_layers(step: Callable[[Any, Any, torch.Tensor], torch.Tensor]) -> Body:
    """A body from ``step(region, layers, x)``, where ``region()`` opens a region of the cell's recipe."""

    def body(region: Region, layers: torch.nn.ModuleList) -> Callable[..., torch.Tensor]:
        def forward(recipes: tuple[Any, ...], x: torch.Tensor) -> torch.Tensor:
            return step(lambda: region(recipe=recipes[0]), layers, x)

        return forward

    return body


def broken_region(region: Region, layers: torch.nn.ModuleList) -> Callable[..., torch.Tensor]:
    """The trap: a break between two layers of a region."""

    def forward(recipes: tuple[Any, ...], x: torch.Tensor) -> torch.Tensor:
        with region(recipe=recipes[0]):
            x = layers[0](x)
            torch._dynamo.graph_break()
            return layers[1](x)  # type: ignore[no-any-return]

    return forward
