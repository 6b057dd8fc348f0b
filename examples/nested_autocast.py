"""Nested FP8 autocast under torch.compile with fullgraph=True: one graph. Run: python examples/nested_autocast.py"""

import torch

from harness.fp8 import Float8BlockScaling, Float8CurrentScaling, ToyLinear, autocast

model = torch.nn.ModuleList([ToyLinear(128, 128) for _ in range(4)])
graphs = 0


def forward(x, outer, inner):
    with autocast(recipe=outer):
        x = model[0](x)
        with autocast(recipe=inner):
            x = model[1](x)
        with autocast(enabled=False):
            x = model[2](x)
        return model[3](x)


def count(graph_module, example_inputs):
    """A torch.compile backend that runs the graph as it is."""
    global graphs
    graphs += 1
    return graph_module.forward


compiled = torch.compile(forward, fullgraph=True, backend=count)
for _ in range(12):
    x = torch.randn(128, 128, dtype=torch.bfloat16, requires_grad=True)
    recipes = Float8CurrentScaling(), Float8BlockScaling()  # equal but new on each call
    y = compiled(x, *recipes)
    y.sum().backward()
    if not torch.equal(y, forward(x, *recipes)):
        raise SystemExit("compiled and eager differ")

print(f"12 calls, nested autocast, fullgraph=True: {graphs} graph; compiled equals eager bit for bit")
