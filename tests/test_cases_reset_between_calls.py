"""cases/reset_between_calls.py: where each variant runs, and how many graphs a reset may leave."""

from __future__ import annotations

import pytest
import torch

from cases.reset_between_calls import CASE, build
from harness.judge.oracle_provider import OracleProvider
from harness.program import CaseContext
from harness.providers.reference import ReferenceProvider
from harness.types import Axes, Spec

OUTER, INNER = Spec("float8_current_scaling"), Spec("float8_block_scaling")


def axes(variant: str) -> Axes:
    return Axes(CASE.name, Spec("reference"), OUTER, variant=variant)


def test_a_replay_needs_a_gpu_and_says_what_stands_in_for_it() -> None:
    reason = CASE.unavailable(ReferenceProvider(), axes("replay"), "cpu")
    assert "no CUDA graph" in reason
    assert "variant between" in reason
    assert CASE.unavailable(ReferenceProvider(), axes("between"), "cpu") == ""


def test_a_provider_without_a_traceable_reset_misses_one_variant_only() -> None:
    provider = ReferenceProvider()
    provider.features = {}
    assert CASE.unavailable(provider, axes("traced"), "cpu") == "reference has no reset_state"
    assert CASE.unavailable(provider, axes("inside"), "cpu") == ""


def test_a_reset_in_the_graph_is_not_traced_for_another_machine() -> None:
    provider = ReferenceProvider()
    assert "fake" in CASE.unavailable(provider, axes("traced"), "sm120")
    assert CASE.unavailable(provider, axes("between"), "sm120") == ""


@pytest.mark.parametrize(("variant", "graphs"), [("between", 1), ("inside", 2), ("traced", 1)])
def test_resets_never_add_a_graph_to_those_of_the_settings(variant: str, graphs: int) -> None:
    context = CaseContext(OracleProvider(torch.bfloat16), axes(variant), INNER, torch.device("cpu"), torch.float64)
    expects = build(context).expects
    assert (expects.graphs, expects.recompiles) == (graphs, graphs - 1)


def test_skip_tensors_are_in_every_snapshot_and_survive_a_reset() -> None:
    provider = ReferenceProvider()
    key = "state.skip_fp8_weight_update_tensor.cpu.id"
    before = provider.snapshot()[key]
    provider.reset()
    assert provider.snapshot()[key] == before
