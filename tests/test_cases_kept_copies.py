from __future__ import annotations

import contextlib

import pytest
import torch

from cases.kept_copies import COPIES, copies, refusals
from harness.faults import FAULTS
from harness.faults.patching import patched
from harness.fp8.weight_cache import WeightCache
from harness.probing import Probing
from harness.providers.reference import ReferenceProvider
from harness.registry import load
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


ASKED = ["refuses_kept_delayed, eager"] + [
    f"refuses_other_{what}, {how}" for what in ("dtype", "width") for how in ("eager", "compiled")
]


def test_refusals_are_asked_of_those_that_state_them() -> None:
    probing, layer = probed(RECIPES[0])
    refusals(probing, layer)
    assert wrong(probing) == []
    assert [fact.name for fact in probing.facts] == [
        f"{ask}, {when}" for ask in ASKED for when in ("at first", "again")
    ]
    accepting, layer = probed(RECIPES[0])
    layer.forward = lambda x, is_first_microbatch=None: x  # type: ignore[method-assign]
    refusals(accepting, layer)
    assert [fact.seen for fact in accepting.facts] == ["nothing"] * len(probing.facts)
    silent, layer = probed(RECIPES[0])
    silent.provider.features = {}  # type: ignore[attr-defined]
    refusals(silent, layer)
    copies(silent, layer)
    assert silent.facts == []


@pytest.mark.parametrize(
    ("name", "unrefused"),
    [
        ("other_dtype_compiled", ["refuses_other_dtype, compiled"]),
        ("longer_rows_cut", ["refuses_other_width, eager", "refuses_other_width, compiled"]),
    ],
)
def test_what_is_taken_is_named_with_the_way_it_was_given(name: str, unrefused: list[str]) -> None:
    with load(FAULTS[name]).apply(ReferenceProvider()):
        probing, layer = probed(RECIPES[0])
        refusals(probing, layer)
    assert wrong(probing) == [f"{ask}, {when}" for ask in unrefused for when in ("at first", "again")]
