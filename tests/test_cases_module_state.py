"""cases.module_state: what it says of layers that save or load too little, and of the reference's."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from cases.module_state import module_state
from harness.faults import FAULTS
from harness.probing import Probing
from harness.program import CaseContext
from harness.providers.reference import ReferenceProvider
from harness.registry import load
from harness.types import Axes, Evidence, Spec

CPU = torch.device("cpu")
SAVED = "parameters that state_dict leaves out, or changes"
REPLACED = "parameters that loading replaced by others, "
RESULTS = "results equal the saved layer's and its own earlier ones, "


def probed(provider: Any, recipe: str = "delayed_scaling", backend: str = "aot_eager") -> Probing:
    axes = Axes("multi_step", Spec("reference"), Spec(recipe), shape=(32, 64, 32), backend=backend)
    part = lambda moment: contextlib.nullcontext()  # noqa: E731
    probing = Probing(provider, axes, Evidence.NATIVE, "cpu", CPU, torch.bfloat16, part)
    module_state(CaseContext(provider, axes, None, CPU, torch.bfloat16))(probing)
    return probing


def wrong(probing: Probing) -> set[str]:
    return {fact.name for fact in probing.facts if fact.expected != fact.seen}


@pytest.mark.parametrize(
    ("recipe", "backend", "ways"),
    [("delayed_scaling", "aot_eager", 1), ("mxfp8_block_scaling", "eager", 2), ("mxfp8_block_scaling", "inductor", 1)],
)
def test_the_references_layers_save_and_load(recipe: str, backend: str, ways: int) -> None:
    before = torch.get_rng_state()
    probing = probed(ReferenceProvider(), recipe, backend)
    assert (wrong(probing), len(probing.facts)) == (set(), 2 + 2 * ways)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bias_not_saved", {SAVED, RESULTS + "eager"}),
        ("loading_replaces_parameters", {REPLACED + "eager"}),
        ("recipe_in_state_dict", {"what torch.load without pickled code makes of state_dict"}),
    ],
)
def test_what_is_lost_is_named(name: str, expected: set[str]) -> None:
    with load(FAULTS[name]).apply(ReferenceProvider()) as provider:
        assert wrong(probed(provider)) == expected


def test_a_layer_that_loads_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.fp8 import ToyLinear

    monkeypatch.setattr(ToyLinear, "_load_from_state_dict", lambda self, *given: None)
    assert wrong(probed(ReferenceProvider())) == {RESULTS + "eager"}


def test_a_graph_that_keeps_the_weight_of_its_first_call_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.fp8 import ops

    quantize, kept = ops.quantize, dict[int, Any]()

    def remembering(source: torch.Tensor, role: str, *rest: Any) -> Any:
        made = quantize(source, role, *rest)  # type: ignore[call-arg]
        return kept.setdefault(source.data_ptr(), made) if role == "weight" else made

    monkeypatch.setattr(ops, "quantize", remembering)
    found = wrong(probed(ReferenceProvider(), "float8_current_scaling"))
    assert found == {RESULTS + "eager", RESULTS + "compiled"}
