"""FP8 calls in captured graphs: every kind of target, and the bodies of higher-order operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from harness.observe.captured import count_fp8_calls, count_left_by_aot
from harness.observe.census import reset_compiler
from tests.support.fake_provider import FP8_OP, FakeProvider, Recipe, autocast, identity_layers, ones

FP8_OPS = frozenset({FP8_OP})


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    reset_compiler()
    FakeProvider().reset()
    yield
    reset_compiler()


def _captured_graphs(fn: Callable[..., Any], *args: Any) -> list[torch.fx.GraphModule]:
    counter = CompileCounterWithBackend("eager")
    torch.compile(fn, backend=counter, fullgraph=True)(*args)
    return counter.graphs


def test_counts_overloads_and_packets() -> None:
    graph = torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    graph.call_function(torch.ops.fakefp8.linear.default, (x, w, "r"))
    graph.call_function(torch.ops.fakefp8.linear, (x, w, "r"))
    graph.call_function(torch.ops.fakefp8.linear_backward, (x, x, w, "r"))
    graph.call_function(torch.ops.aten.mm.default, (x, w))
    assert count_fp8_calls(torch.fx.GraphModule({}, graph), FP8_OPS) == 2


def test_counts_torch_builtins() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch._scaled_mm, (x, x, x, x))
    module = torch.fx.GraphModule({}, graph)
    assert count_fp8_calls(module, frozenset({"aten::_scaled_mm"})) == 1
    assert count_fp8_calls(module, FP8_OPS) == 0


def test_counts_submodules_once_per_call() -> None:
    inner = torch.fx.Graph()
    x, w = inner.placeholder("x"), inner.placeholder("w")
    inner.output(inner.call_function(torch.ops.fakefp8.linear.default, (x, w, "r")))
    outer = torch.fx.Graph()
    x, w = outer.placeholder("x"), outer.placeholder("w")
    outer.call_module("body", (x, w))
    outer.call_module("body", (x, w))
    module = torch.fx.GraphModule({"body": torch.fx.GraphModule({}, inner)}, outer)
    assert count_fp8_calls(module, FP8_OPS) == 2


def test_counts_inside_a_checkpoint() -> None:
    layers = identity_layers()

    def program(recipe: Recipe, x: torch.Tensor) -> torch.Tensor:
        with autocast(recipe=recipe):
            return torch.utils.checkpoint.checkpoint(layers[0], x, use_reentrant=False)  # type: ignore[no-any-return]

    (graph,) = _captured_graphs(program, Recipe("r"), ones())
    assert not any("fakefp8" in str(node.target) for node in graph.graph.nodes)  # it stands in the body
    assert count_fp8_calls(graph, FP8_OPS) == 1


def test_counts_the_longer_branch_of_cond() -> None:
    w = torch.eye(16, dtype=torch.bfloat16)

    def once(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.fakefp8.linear(x, w, "r")  # type: ignore[no-any-return]

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: once(once(x)), once, (x,))  # type: ignore[no-any-return]

    (graph,) = _captured_graphs(program, ones().detach())
    assert count_fp8_calls(graph, FP8_OPS) == 2


def test_counts_the_forward_of_an_autograd_function_only() -> None:
    w = torch.eye(16, dtype=torch.bfloat16)

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.fakefp8.linear(x, w, "r")  # type: ignore[no-any-return]

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return torch.ops.fakefp8.linear(g, w, "r")  # type: ignore[no-any-return]

    (graph,) = _captured_graphs(lambda x: Function.apply(x), ones())
    assert count_fp8_calls(graph, FP8_OPS) == 1


LEFT = """
class GraphModule(torch.nn.Module):
    def forward(self, primals_1):
         # File: m.py:3 in forward, code: return torch.ops.fakefp8.linear.default(x, w)
        linear = torch.ops.fakefp8.linear.default(primals_1)  # torch.ops.fakefp8.linear.default(
        other = torch.ops.fakefp8.linear_backward.default(linear)
        auto = torch.ops.higher_order.auto_functionalized_v2(torch.ops.fakefp8.linear.default, x = other)
"""


def test_what_aot_merged_or_dropped_is_not_captured() -> None:
    assert count_left_by_aot(3, [LEFT], FP8_OPS) == 2  # neither another operator nor a comment counts
    assert count_left_by_aot(5, [LEFT, LEFT], FP8_OPS) == 4
    assert count_left_by_aot(1, ["def forward(self): pass"], FP8_OPS) == 0
    assert count_left_by_aot(1, [LEFT], FP8_OPS) == 1  # the branches of a cond: AOT adds no calls


def test_without_a_word_of_aot_every_call_is_left() -> None:
    assert count_left_by_aot(3, [], FP8_OPS) == 3
