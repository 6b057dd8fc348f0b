"""The checkpoint case: what is recomputed where, and which eager code it calls wrong."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cases import CASES
from cases.checkpoint import VARIANTS, eager_fault, recomputed, unavailable
from harness.judge.oracle_provider import OracleProvider
from harness.program import CaseContext
from harness.types import Axes, Spec


def context(variant: str, recipe: str = "float8_current_scaling", nesting: str = "flat") -> CaseContext:
    axes = Axes("checkpoint", Spec("reference"), Spec(recipe), variant=variant, nesting=nesting)
    return CaseContext(OracleProvider(torch.bfloat16), axes, None, torch.device("cpu"), torch.bfloat16)


def test_every_variant_is_registered() -> None:
    assert set(CASES["checkpoint"].variants) == set(VARIANTS)


@pytest.mark.parametrize(
    ("backend", "expected"),
    [("eager", ("c", "a", "b")), ("aot_eager", ("a",)), ("inductor", ("a",))],
)
def test_aot_drops_a_bodys_last_product_and_the_last_body_comes_first(backend: str, expected: tuple[str, ...]) -> None:
    assert recomputed(backend, [("a", "b"), ("c",)]) == expected


@pytest.mark.parametrize(
    ("variant", "recipe", "nesting", "wrong"),
    [
        ("own_around", "delayed_scaling", "flat", False),
        ("torch_inside", "float8_current_scaling", "deep", False),
        ("torch_inside", "delayed_scaling", "flat", True),
        ("reentrant_inside", "delayed_scaling", "flat", False),
        ("torch_around", "float8_current_scaling", "flat", True),
        ("torch_backward_inside", "float8_current_scaling", "flat", False),
        ("torch_backward_inside", "float8_current_scaling", "nested", True),
        ("torch_backward_inside", "delayed_scaling", "flat", True),
    ],
)
def test_which_eager_code_is_wrong(variant: str, recipe: str, nesting: str, wrong: bool) -> None:
    assert bool(eager_fault(context(variant, recipe, nesting), VARIANTS[variant])) == wrong


def test_a_provider_without_a_checkpoint_runs_torchs() -> None:
    bare = SimpleNamespace(name="bare")
    of = {name: unavailable(bare, context(name).axes, "cpu") for name in VARIANTS}  # type: ignore[arg-type]
    assert {name for name, reason in of.items() if reason} == {"own_around", "own_inside", "own_both"}
    assert of["own_around"] == "bare has no checkpoint"
