"""harness.judge.numerics_views: which of a run's tensors and products stand beside which of the oracle's."""

from __future__ import annotations

from dataclasses import replace

import torch

from harness.judge.numerics_views import direct_products, flat, same_operand, summed, tensors_of
from tests.support.judge_stub import StubProvider
from tests.test_judge_numerics_bench import bench


def test_a_tensor_s_own_products_are_found_by_what_they_returned() -> None:
    (view,) = bench(StubProvider(), None).views
    step = view.oracle.steps[-1]
    names = {name: [product.product for product in direct_products(step, name)] for name in tensors_of(step)}
    assert names["output"] == ["fprop"]
    assert names["input0"] == ["dgrad"]
    weights = [found for name, found in names.items() if name.endswith("weight")]
    assert weights
    assert all(found == ["wgrad"] for found in weights)
    assert all(found == [] for name, found in names.items() if name.endswith("bias"))
    other = replace(step, grads={**step.grads, "input0": step.grads["input0"] + 1.0})
    assert direct_products(other, "input0") == []


def test_bounds_are_summed_in_the_shape_of_their_tensor() -> None:
    like = torch.zeros(2, 3, 4)
    bound = torch.ones(6, 4, dtype=torch.float64)
    assert torch.equal(summed([bound, bound], like), torch.full((2, 3, 4), 2.0, dtype=torch.float64))
    assert torch.equal(summed([], like), torch.zeros(2, 3, 4, dtype=torch.float64))
    assert flat(like).shape == (6, 4)
    assert flat(torch.zeros(3)).shape == (3,)


def test_same_operand_looks_at_everything() -> None:
    record = bench(StubProvider(), None).views[0].pairs[0].record
    a = record.a
    assert same_operand(a, replace(a, codes=a.codes.clone()))
    other_codes = a.codes.clone()
    other_codes[0, 0] ^= 1
    for changed in (
        replace(a, codes=other_codes),
        replace(a, scale=a.scale * 2),
        replace(a, format="e5m2"),
        replace(a, role="weight"),
        replace(a, block=(1, 1)),
        replace(a, global_scale=torch.ones(1)),
    ):
        assert not same_operand(a, changed)
