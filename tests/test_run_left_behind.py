"""What a product leaves of torch's in force: its own cell is red for it, and judged; the next one is as if alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from harness.observe.state import compiler_settings, diff, torch_state
from harness.run.execute import execute_cell
from harness.types import Axes, Cell, CellResult, Expectation, Spec, Verdict


def run(fault: str = "") -> CellResult:
    provider = Spec(f"reference+tests.support.leaving:{fault}" if fault else "reference")
    axes = Axes("toy_linear", provider, Spec("float8_current_scaling"), backend="eager")
    return execute_cell(Cell("cell", axes, None, Expectation()))


def state() -> Mapping[str, Any]:
    return {**torch_state(), **compiler_settings()}


@pytest.fixture(scope="module")
def alone() -> CellResult:
    return run()


LEFT = {
    "MODES": {"torch.dispatch_modes", "torch.module_hooks"},
    "SWITCHES": {
        "torch.anomaly_mode",
        "torch.autocast.cpu.enabled",
        "torch.default_dtype",
        "torch.dynamo_stance",
        "torch.flush_denormal",
        "torch.grad_enabled",
    },
    "DEVICE": {"torch.default_device", "torch.function_modes"},
    "HOOKS": {"torch.autograd.pack_hooks_active"},
}


@pytest.mark.parametrize("fault", LEFT)
def test_a_cell_that_leaves_something_is_red_for_it_and_the_next_is_judged_as_if_alone(
    fault: str, alone: CellResult
) -> None:
    before = state()
    red = run(fault)
    assert red.verdict is Verdict.FAIL
    assert "state.unchanged" in {finding.check for finding in red.findings}
    assert LEFT[fault] <= {item["key"] for item in red.state["diffs"]}
    assert diff(before, state(), "") == ()
    after = run()
    assert (after.verdict, after.findings, after.notes) == (Verdict.PASS, (), alone.notes)
    assert (after.checks, after.census, after.numerics) == (alone.checks, alone.census, alone.numerics)


def test_the_judge_computes_under_what_was_found() -> None:
    """A hook that changes the oracle's results alone: no number of the product is wrong."""
    red = run("ORACLE_DOUBLED")
    assert {finding.check for finding in red.findings} == {"state.unchanged"}
    assert red.numerics == run().numerics
