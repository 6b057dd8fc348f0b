"""cases.delayed_scaling: histories by hand, and what each variant makes of the recipe that the matrix wrote."""

from __future__ import annotations

import pytest
import torch

from cases.delayed_scaling import LENGTHS, Expected, build, specs_of, unavailable
from harness.program import CaseContext, Program, Step
from harness.providers.reference import ReferenceProvider
from harness.providers.reference_features import delayed_scales
from harness.types import Axes, Scalar, Spec


def axes(variant: str, **fields: Scalar) -> Axes:
    recipe = Spec("delayed_scaling", tuple(sorted(fields.items())))
    return Axes("delayed_scaling", Spec("reference"), recipe, variant=variant)


def test_rows_move_up_and_the_largest_gives_the_scale() -> None:
    kept = Expected()
    seen = []
    for amax in (7.0, 14.0, 3.5, 3.5):
        kept = kept.after(amax, 3, 448.0)
        seen.append((kept.scale, kept.history))
    assert seen == [
        (64.0, (0.0, 0.0, 7.0)),
        (32.0, (0.0, 7.0, 14.0)),
        (32.0, (0.0, 14.0, 3.5)),
        (32.0, (0.0, 3.5, 3.5)),
    ]
    assert kept.after(3.5, 3, 448.0).scale == 128.0, "the fourteen is forgotten after three steps"


def test_another_length_cuts_rows_off_or_adds_zeros_at_the_end() -> None:
    kept = Expected(1.0, (0.0, 7.0, 14.0))
    assert kept.after(1.0, 5, 448.0).history == (0.0, 14.0, 0.0, 0.0, 1.0)
    assert kept.after(1.0, 2, 448.0).history == (0.0, 1.0)
    assert kept.after(1.0, 1, 448.0).history == (0.0,)


def test_the_matrix_has_the_last_word_on_fields() -> None:
    assert specs_of(axes("inside")) == (Spec("delayed_scaling", (("amax_history_len", 2),)),)
    (own,) = specs_of(axes("around", amax_history_len=16))
    assert own.as_dict() == {"amax_history_len": 16, "amax_compute_algo": "most_recent", "margin": 1}
    lengths = [spec.as_dict()["amax_history_len"] for spec in specs_of(axes("resized", margin=2))]
    assert tuple(lengths) == LENGTHS
    assert all(spec.as_dict()["margin"] == 2 for spec in specs_of(axes("resized", margin=2)))


def test_a_provider_without_the_needed_feature_is_skipped() -> None:
    provider = ReferenceProvider()
    assert unavailable(provider, axes("checkpoint"), "cpu") == unavailable(provider, axes("resized"), "cpu") == ""
    assert unavailable(provider, axes("calibrated"), "cpu") == ""
    provider.features = {}
    assert "no checkpoint" in unavailable(provider, axes("checkpoint"), "cpu")
    assert "no delayed_scales" in unavailable(provider, axes("resized"), "cpu")
    assert "no calibrating_autocast" in unavailable(provider, axes("calibrated"), "cpu")
    assert unavailable(provider, axes("inside"), "cpu") == ""


def program(variant: str) -> Program:
    return build(CaseContext(ReferenceProvider(), axes(variant), None, torch.device("cpu"), torch.bfloat16))


def test_a_calibrating_step_has_no_products_and_every_fifth_is_one() -> None:
    expects = program("calibrated").expects
    assert [len(expects.step(index).products) for index in range(7)] == [0, 6, 6, 6, 6, 0, 6]
    assert [len(program("shared").expects.step(index).fprop) for index in range(2)] == [3, 3]


def test_a_calibrating_step_moves_the_scales_of_input_and_weight_alone() -> None:
    of = program("calibrated")
    inputs = of.make_inputs(torch.Generator().manual_seed(0))
    of.run(Step(0, of.forward, of.recipes(), inputs)).sum().backward()
    for layer in of.model.children():
        scales = {role: scale for role, (scale, _) in delayed_scales(layer).items()}
        assert scales["input"] == pytest.approx(448 / inputs[0].abs().max().item())
        assert scales["weight"] == pytest.approx(448 / layer.get_parameter("weight").abs().max().item())
        assert scales["grad_output"] == 1.0


def test_a_shared_layer_meets_the_larger_values_first_in_both_directions() -> None:
    of = program("shared")
    provider = ReferenceProvider()
    (x,) = of.make_inputs(torch.Generator().manual_seed(0))
    with provider.tap() as records:
        y = of.run(Step(0, of.forward, of.recipes(), (x,)))
        y.backward(torch.ones_like(y))
    first = [record for record in records if record.weight_ptr == records[0].weight_ptr]
    for product in ("fprop", "dgrad"):
        one, other = (record.a.source.abs().max().item() for record in first if record.product == product)
        assert one == 4 * other > 0
