"""harness.torch_compat, the part for cases: what each private name of torch is there for."""

from __future__ import annotations

import pytest
import torch

from harness import torch_compat
from harness.observe.census import reset_compiler


def test_breaks_are_counted_by_dynamos_own_function() -> None:
    graph_break = torch_compat.graph_break_function()

    def breaks(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        graph_break()
        return x * 2

    assert torch_compat.explained_breaks(breaks, torch.ones(2)) == 1
    assert torch_compat.explained_breaks(lambda x: x + 1, torch.ones(2)) == 0


def test_comptime_runs_while_tracing_only() -> None:
    traced: list[int] = []
    comptime = torch_compat.comptime_function()

    def note(context: object) -> None:
        traced.append(1)

    def program(x: torch.Tensor) -> torch.Tensor:
        comptime(note)
        return x + 1

    program(torch.ones(2))
    assert traced == []
    reset_compiler()
    torch.compile(program, backend="eager")(torch.ones(2))
    assert traced == [1]


def test_a_break_is_an_error_where_it_is_said_to_be() -> None:
    on_break = torch_compat.error_on_graph_break_class()
    graph_break = torch_compat.graph_break_function()

    def program(x: torch.Tensor) -> torch.Tensor:
        with on_break(True):
            x = x + 1
            graph_break()
        return x

    reset_compiler()
    with pytest.raises(Exception, match="User-inserted graph break"):
        torch.compile(program, backend="eager")(torch.ones(2))


def test_settings_defaults_metrics_and_errors() -> None:
    with torch_compat.patched_compile_config({"dynamo.recompile_limit": 3}):
        assert torch_compat.dynamo_default("recompile_limit") == 8
    reset_compiler()
    assert torch_compat.compilation_metrics_kept() == "0 kept of at most 64"
    assert "a text" in str(torch_compat.user_error("a text"))
    assert "register_opaque_type" in torch_compat.opaque_api()
    assert torch_compat.eager_backend_recomputes() is not torch.__version__.startswith("2.11")
