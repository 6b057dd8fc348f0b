"""cases.module_hooks: the reference's layers call hooks as torch does, and what is left out or replaced is named."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from cases.module_hooks import module_hooks
from harness.faults import FAULTS
from harness.probing import Probing
from harness.program import CaseContext
from harness.providers.reference import ReferenceProvider
from harness.registry import load
from harness.types import Axes, Evidence, Spec

CPU = torch.device("cpu")
RAN, GIVEN = "hooks that ran, ", "tensors of the call that its hooks were not given, "
SHOWN = "the class that a layer shows"


def probed(provider: Any, recipe: str = "delayed_scaling", dtype: torch.dtype = torch.bfloat16) -> Probing:
    axes = Axes("stack", Spec("reference"), Spec(recipe), shape=(32, 64, 32), variant="shared")
    part = lambda moment: contextlib.nullcontext()  # noqa: E731
    probing = Probing(provider, axes, Evidence.NATIVE, "cpu", CPU, dtype, part)
    module_hooks(CaseContext(provider, axes, None, CPU, dtype))(probing)
    return probing


def wrong(probing: Probing) -> dict[str, str]:
    return {fact.name: fact.seen for fact in probing.facts if fact.expected != fact.seen}


@pytest.mark.parametrize(
    ("recipe", "dtype", "ways"), [("delayed_scaling", torch.float16, 1), ("nvfp4_block_scaling", torch.bfloat16, 2)]
)
def test_hooks_of_the_references_layers(recipe: str, dtype: torch.dtype, ways: int) -> None:
    before = torch.get_rng_state()
    probing = probed(ReferenceProvider(), recipe, dtype)
    assert (wrong(probing), len(probing.facts)) == ({}, 1 + 2 * ways)
    assert torch.equal(before, torch.get_rng_state())


def test_hooks_that_do_not_run_are_named() -> None:
    with load(FAULTS["hooks_skipped"]).apply(ReferenceProvider()) as provider:
        found = wrong(probed(provider, "float8_current_scaling"))
    assert set(found) == {name + how for name in (RAN, GIVEN) for how in ("eager", "compiled")}
    assert found[RAN + "compiled"] == '["weight\'s gradient"]'


def test_a_layer_that_cannot_be_shown_is_named_with_its_error() -> None:
    with load(FAULTS["repr_fails"]).apply(ReferenceProvider()) as provider:
        assert wrong(probed(provider)) == {SHOWN: "AttributeError: 'ToyLinear' object has no attribute 'tp_size'"}


def test_a_hook_that_runs_twice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.fp8 import ToyLinear

    call = ToyLinear.__call__

    def again(layer: Any, x: torch.Tensor) -> Any:
        with torch.no_grad():
            call(layer, x)
        return call(layer, x)

    monkeypatch.setattr(ToyLinear, "__call__", again)
    assert set(wrong(probed(ReferenceProvider()))) == {RAN + "eager"}


def test_a_result_that_passes_by_the_hook_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.fp8 import ToyLinear

    call = ToyLinear.__call__
    monkeypatch.setattr(ToyLinear, "__call__", lambda layer, x: call(layer, x) * 2)
    found = wrong(probed(ReferenceProvider()))
    assert set(found) == {GIVEN + "eager"}
    assert "'result'" in found[GIVEN + "eager"]
