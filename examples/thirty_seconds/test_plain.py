"""A plain test of FP8 under torch.compile. It is green, and the program it tests never runs compiled."""

import torch
from torch._dynamo.utils import counters

from harness.fp8 import Float8CurrentScaling, ToyLinear, autocast


class CheckedLinear(ToyLinear):
    def forward(self, x):
        if x.isnan().any():  # a harmless-looking check, inside the FP8 region
            raise ValueError("NaN in the input")
        return super().forward(x)


def test_fp8_linear_compiles():
    layer = CheckedLinear(256, 128)
    recipe = Float8CurrentScaling()

    def forward(x):
        with autocast(enabled=True, recipe=recipe):
            return layer(x)

    x = torch.randn(128, 256, dtype=torch.bfloat16)
    counters.clear()
    compiled = torch.compile(forward, backend="aot_eager")
    torch.testing.assert_close(compiled(x), forward(x))  # numerics match: of course they do
    assert sum(counters["graph_break"].values()) == 0  # and no graph break was counted
