from __future__ import annotations

import contextlib

import pytest
import torch

from cases.kept_copies import COPIES, copies, refusals
from harness.faults.patching import patched
from harness.fp8.weight_cache import WeightCache
from harness.probing import Probing
from harness.providers.reference import ReferenceProvider
from harness.types import Axes, Evidence, Spec

RECIPES = ["float8_current_scaling", "mxfp8_block_scaling", "nvfp4_block_scaling"]


def probed(recipe: str) -> tuple[Probing, torch.nn.Module]:
    provider = ReferenceProvider()
    provider.reset()
    axes = Axes("microbatch", Spec("reference"), Spec(recipe), shape=(32, 64, 32))
    device = torch.device("cpu")
    layer = provider.linear(64, 32, bias=False, dtype=torch.bfloat16, device=device)
    part = lambda moment: contextlib.nullcontext()  # noqa: E731
    return Probing(provider, axes, Evidence.NATIVE, "cpu", device, torch.bfloat16, part), layer


def wrong(probing: Probing) -> list[str]:
    return [fact.name for fact in probing.facts if fact.expected != fact.seen]


@pytest.mark.parametrize("recipe", RECIPES)
def test_copies_of_a_layer_are_layers_of_their_own(recipe: str) -> None:
    probing, layer = probed(recipe)
    copies(probing, layer)
    assert (wrong(probing), len(probing.facts)) == ([], 3 * len(COPIES))


def test_a_shared_weight_cache_is_seen() -> None:
    probing, layer = probed(RECIPES[0])
    with patched(WeightCache, "__deepcopy__", lambda self, memo: self):
        copies(probing, layer)
    assert wrong(probing) == ["deepcopy: the layer uses what it kept, whatever the copy keeps"]


def test_refusals_are_asked_of_those_that_state_them() -> None:
    probing, layer = probed(RECIPES[0])
    refusals(probing, layer)
    assert (wrong(probing), len(probing.facts)) == ([], 4)
    accepting, layer = probed(RECIPES[0])
    layer.forward = lambda x, is_first_microbatch=None: x  # type: ignore[method-assign]
    refusals(accepting, layer)
    assert [fact.seen for fact in accepting.facts] == ["nothing"] * 4
    silent, layer = probed(RECIPES[0])
    silent.provider.features = {}  # type: ignore[attr-defined]
    refusals(silent, layer)
    copies(silent, layer)
    assert silent.facts == []
