"""What one would write without the harness: one parametrised pytest file over the cells of configs/ci.yaml.

It imports nothing of the harness but the system under test. Same cells and the same comparisons as far as a plain
test goes: eager twice, compiled against eager bit for bit (output, input gradient, parameter gradients), all of them
against a float64 product within a tolerance, one graph, no counted break, ten more calls that compile nothing, state
as before; DelayedScaling must refuse. What it can't see is the point of README's first screen.

    python -m pytest benchmarks/plain_pytest -n 2 -q
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

from harness import fp8

ROWS, IN, OUT = 128, 256, 128
RECIPES = {
    "float8_current_scaling": fp8.Float8CurrentScaling,
    "float8_block_scaling": fp8.Float8BlockScaling,
    "mxfp8_block_scaling": fp8.MXFP8BlockScaling,
    "nvfp4_block_scaling": fp8.NVFP4BlockScaling,
    "float8_rowwise_scaling": fp8.Float8RowwiseScaling,
    "delayed_scaling": lambda: fp8.DelayedScaling(amax_history_len=16),
}
PARTNER = {
    "float8_current_scaling": "float8_block_scaling",
    "float8_block_scaling": "float8_current_scaling",
    "mxfp8_block_scaling": "float8_current_scaling",
    "nvfp4_block_scaling": "mxfp8_block_scaling",
    "float8_rowwise_scaling": "float8_current_scaling",
    "delayed_scaling": "float8_current_scaling",
}
LAYERS = {"flat": 2, "nested": 3, "nested_disabled": 3, "deep": 5, "sequential": 3}
# The error of an FP8 product relative to float64, per layer passed through; E2M1 has one mantissa bit.
TOLERANCE = {"nvfp4_block_scaling": 0.9}


class Net(torch.nn.Module):
    def __init__(self, nesting: str) -> None:
        super().__init__()
        self.nesting = nesting
        self.layers = torch.nn.ModuleList(
            fp8.ToyLinear(*((IN, OUT) if i % 2 == 0 else (OUT, IN)), bias=True, dtype=torch.bfloat16)
            for i in range(LAYERS[nesting])
        )

    def forward(self, x, outer, inner):
        l = self.layers  # noqa: E741
        if self.nesting == "flat":
            with fp8.autocast(enabled=True, recipe=outer):
                return l[1](l[0](x))
        if self.nesting == "sequential":
            with fp8.autocast(enabled=True, recipe=outer):
                x = l[0](x)
            x = l[1](x)
            with fp8.autocast(enabled=True, recipe=inner):
                return l[2](x)
        with fp8.autocast(enabled=True, recipe=outer):
            x = l[0](x)
            if self.nesting == "nested_disabled":
                with fp8.autocast(enabled=False):
                    x = l[1](x)
                return l[2](x)
            with fp8.autocast(enabled=True, recipe=inner):
                x = l[1](x)
                if self.nesting == "deep":
                    with fp8.autocast(enabled=True, recipe=outer):
                        x = l[2](x)
                    x = l[3](x)
            return l[-1](x)


def step(net, forward, x, grad, recipe, partner):
    x = x.detach().clone().requires_grad_(True)
    net.zero_grad(set_to_none=True)
    y = forward(x, RECIPES[recipe](), RECIPES[partner]())
    y.backward(grad)
    return [y.detach().clone(), x.grad.clone(), *(p.grad.clone() for p in net.parameters())]


def exact(net, x, grad):
    """The same network in float64 without quantisation."""
    params = [p.detach().double().requires_grad_(True) for p in net.parameters()]
    x = x.double().requires_grad_(True)
    y = x
    for weight, bias in zip(params[::2], params[1::2], strict=True):
        y = torch.nn.functional.linear(y, weight, bias)
    y.backward(grad.double())
    return [y.detach(), x.grad, *(p.grad for p in params)]


@pytest.fixture(autouse=True)
def clean():
    torch._dynamo.reset()
    counters.clear()
    fp8.FP8GlobalStateManager.reset()
    torch.manual_seed(0)


CELLS = [
    *((r, f, n, "aot_eager", "normal") for r in RECIPES for f in (True, False) for n in LAYERS),
    ("float8_current_scaling", True, "nested", "inductor", "normal"),
    ("float8_block_scaling", True, "nested", "inductor", "normal"),
    ("float8_current_scaling", True, "flat", "aot_eager", "positive"),
    ("float8_current_scaling", True, "flat", "aot_eager", "heavy_tailed"),
    ("mxfp8_block_scaling", True, "flat", "aot_eager", "positive"),
    ("nvfp4_block_scaling", True, "flat", "aot_eager", "heavy_tailed"),
]


def draw(data, *shape):
    x = torch.randn(*shape)
    if data == "positive":
        x = x.abs()
    if data == "heavy_tailed":
        x = x / torch.rand(*shape).clamp_min(1e-3)
    return x.to(torch.bfloat16)


@pytest.mark.parametrize(("recipe", "fullgraph", "nesting", "backend_name", "data"), CELLS)
def test_fp8_compile(recipe, fullgraph, nesting, backend_name, data):
    partner = PARTNER[recipe]
    net = Net(nesting)
    x, grad = draw(data, ROWS, IN), torch.randn(ROWS, IN if nesting == "flat" else OUT, dtype=torch.bfloat16)
    before = copy.copy(fp8.FP8GlobalStateManager.get_autocast_state())
    backend = CompileCounterWithBackend(backend_name)
    compiled = torch.compile(net.forward, fullgraph=fullgraph, backend=backend)
    if recipe == "delayed_scaling":
        step(net, net.forward, x, grad, recipe, partner)
        for _ in range(3):
            with pytest.raises(Exception, match=r"not supported under torch\.compile"):
                step(net, compiled, x, grad, recipe, partner)
        return
    eager = step(net, net.forward, x, grad, recipe, partner)
    again = step(net, net.forward, x, grad, recipe, partner)
    result = step(net, compiled, x, grad, recipe, partner)
    limit = TOLERANCE.get(recipe, TOLERANCE.get(partner, 0.25)) if nesting != "flat" else TOLERANCE.get(recipe, 0.25)
    for got, first, second, reference in zip(result, eager, again, exact(net, x, grad), strict=True):
        assert torch.equal(first, second)
        if backend_name == "inductor":
            torch.testing.assert_close(got, first, rtol=0.05, atol=0.05)
        else:
            assert torch.equal(got, first)
        assert ((got.double() - reference).norm() / reference.norm()) < limit
    graphs = backend.frame_count
    for _ in range(10):
        fresh = torch.randn_like(x)
        step(net, compiled, fresh, grad, recipe, partner)
    assert graphs == backend.frame_count == 1
    assert sum(counters["graph_break"].values()) == 0
    assert fp8.FP8GlobalStateManager.get_autocast_state() == before
