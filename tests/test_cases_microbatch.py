"""The microbatch case: weights change so much that a kept one can't pass for a new one, and who can run it."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from cases.microbatch import STEPS, WINDOW, change_weights, unavailable
from harness.providers.reference import ReferenceProvider
from harness.types import Axes, Spec


def test_weights_change_and_biases_do_not() -> None:
    model = torch.nn.Linear(4, 4)
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    change_weights(model)
    assert torch.equal(model.weight, weight * -1.25)
    assert torch.equal(model.bias, bias)


def test_the_judged_steps_quantise_changed_weights_and_end_on_kept_ones() -> None:
    assert WINDOW < STEPS
    assert (STEPS - 1) % WINDOW != 0


def test_who_can_run_it() -> None:
    axes = Axes("microbatch", Spec("reference"), Spec("float8_current_scaling"), variant="flag")
    assert unavailable(ReferenceProvider(), axes, "cpu") == ""
    reason = unavailable(SimpleNamespace(name="bare"), axes, "cpu")  # type: ignore[arg-type]
    assert reason.startswith("bare has no cached_linear")
