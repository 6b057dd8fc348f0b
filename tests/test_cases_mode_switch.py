"""The mode_switch case: orders, and the module that tells training from evaluation."""

from __future__ import annotations

import itertools

import pytest
import torch

from cases import CASES
from cases.mode_switch import MODES, ORDERS, HalvedInTraining, schedule_of


def test_every_order_is_registered_and_holds_every_mode() -> None:
    assert set(CASES["mode_switch"].variants) == set(ORDERS)
    assert all(sorted(order) == sorted(MODES) for order in ORDERS.values())
    assert len(set(ORDERS.values())) == len(ORDERS)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_schedule_meets_each_mode_after_several_others(order: tuple[str, ...]) -> None:
    modes = schedule_of(order)
    assert modes[: len(order)] == order
    assert modes[-1] == modes[0]
    following = {(a, b) for a, b in itertools.pairwise(modes)}
    assert {b for _, b in following} == set(MODES)
    assert len(following) == 2 * (len(MODES) - 1)


def test_training_differs_from_evaluation_exactly() -> None:
    module, x = HalvedInTraining(), torch.randn(8).bfloat16()
    assert torch.equal(module(x) * 2, x)
    assert torch.equal(module.eval()(x), x)
