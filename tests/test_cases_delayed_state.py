"""cases.delayed_state: whose scales are whose, of the reference and of libraries that share too much or too little."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from cases.delayed_state import copied_scales, group_scales, kept_scales
from harness.faults import FAULTS
from harness.faults.patching import patched
from harness.probing import Probing
from harness.providers.reference import ReferenceProvider
from harness.registry import load
from harness.types import Axes, Evidence, Spec

CPU = torch.device("cpu")


def probing_of(provider: Any) -> Probing:
    axes = Axes("delayed_scaling", Spec("reference"), Spec("delayed_scaling"), variant="resized")
    part = lambda moment: contextlib.nullcontext()  # noqa: E731
    return Probing(provider, axes, Evidence.NATIVE, "cpu", CPU, torch.bfloat16, part)


def wrong(probing: Probing) -> list[str]:
    return [fact.name for fact in probing.facts if fact.expected != fact.seen]


def test_copies_of_the_references_layers_have_scales_of_their_own() -> None:
    before = torch.get_rng_state()
    probing = probing_of(ReferenceProvider())
    copied_scales(probing)
    assert (wrong(probing), len(probing.facts)) == ([], 6)
    assert torch.equal(before, torch.get_rng_state())


def test_shared_scales_are_seen_by_the_way_of_copying() -> None:
    with load(FAULTS["copies_share_scales"]).apply(ReferenceProvider()) as provider:
        probing = probing_of(provider)
        copied_scales(probing)
    assert wrong(probing) == ["deepcopy: those of the layer, after a step of the copy"]


def test_a_copy_that_begins_anew_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.fp8 import ToyLinear

    monkeypatch.setattr(ToyLinear, "__getstate__", lambda self: {**self.__dict__, "delayed": None}, raising=False)
    probing = probing_of(ReferenceProvider())
    copied_scales(probing)
    assert wrong(probing) == [f"{how}: scales and histories of the copy" for how in ("deepcopy", "pickle")]


def test_the_reference_reduces_over_the_group_that_a_region_names() -> None:
    probing = probing_of(ReferenceProvider())
    group_scales(probing)
    assert (wrong(probing), len(probing.facts)) == ([], 4)


def test_scales_of_each_process_alone_are_seen() -> None:
    with load(FAULTS["amax_not_reduced"]).apply(ReferenceProvider()) as provider:
        probing = probing_of(provider)
        group_scales(probing)
    assert wrong(probing) == ["scales in a group"]


def test_a_sum_over_the_group_and_a_group_that_stays_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.fp8 import delayed

    update, known = delayed.update, list[Any]()
    reduce = torch.distributed.all_reduce

    def stays(recipe: Any, group: Any, *tensors: Any) -> None:
        known.extend([] if group is None else [group])
        update(recipe, known[0], *tensors)

    def summed(tensor: torch.Tensor, op: Any, group: Any) -> None:
        reduce(tensor, op=torch.distributed.ReduceOp.SUM, group=group)

    monkeypatch.setattr(torch.distributed, "all_reduce", summed)
    monkeypatch.setattr(delayed, "update", stays)
    probing = probing_of(ReferenceProvider())
    group_scales(probing)
    assert wrong(probing) == [
        "reductions other than to the maximum",
        "scales without a group, beside it",
        "reductions without a group",
    ]


def test_inference_and_steps_without_a_scale_keep_the_references_scales() -> None:
    before = torch.get_rng_state()
    probing = probing_of(ReferenceProvider())
    kept_scales(probing)
    assert (wrong(probing), len(probing.facts)) == ([], 4)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("fault", "first"),
    [
        ("scales_move_in_inference", "scales and histories after a forward under no_grad"),
        ("zero_step_resets_scale", "scales after a step on zeros"),
        ("nan_amax_stays", "scales after a step on NaN"),
    ],
)
def test_scales_that_move_without_an_ordinary_step_are_seen(fault: str, first: str) -> None:
    with load(FAULTS[fault]).apply(ReferenceProvider()) as provider:
        probing = probing_of(provider)
        kept_scales(probing)
    assert wrong(probing)[0] == first


def test_providers_and_builds_without_groups_or_copies_state_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = ReferenceProvider()
    probing = probing_of(provider)
    with patched(provider, "features", {}):
        copied_scales(probing)
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    group_scales(probing)
    assert probing.facts == []
