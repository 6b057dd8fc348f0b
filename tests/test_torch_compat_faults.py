"""harness.torch_compat, the part for seeded faults and what the snapshot needs to see them."""

from __future__ import annotations

import torch

from harness import torch_compat
from harness.observe.census import reset_compiler


def test_the_passing_mode_changes_nothing_and_is_seen() -> None:
    x = torch.linspace(-1, 1, 8)
    with torch_compat.passing_dispatch_mode():
        assert torch_compat.dispatch_modes() == ("Passing",)
        assert torch.equal(x * 2, x + x)
    assert torch_compat.dispatch_modes() == ()


def test_counters_are_cleared_and_compiled_code_stays() -> None:
    reset_compiler()
    graphs: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(1)
        return graph.forward

    compiled = torch.compile(lambda x: x + 1, backend=backend)
    compiled(torch.ones(2))
    assert torch_compat.dynamo_counters()["frames"]["total"] == 1
    torch_compat.clear_dynamo_counters()
    assert not torch_compat.dynamo_counters().get("frames")
    compiled(torch.ones(2))
    assert graphs == [1]


def test_compiled_autograd_is_seen_while_it_is_on() -> None:
    assert torch_compat.autograd_switches()["compiled"] is False
    with torch_compat.compiled_autograd("aot_eager"):
        assert torch_compat.autograd_switches()["compiled"] is True
    assert torch_compat.autograd_switches()["compiled"] is False
