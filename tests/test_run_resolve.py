from __future__ import annotations

import dataclasses

import pytest

from harness.faults.cell import cells_of
from harness.faults.sm100_doubles import FAULT
from harness.providers.reference import ReferenceProvider
from harness.run.execute import execute_cell
from harness.run.resolve import resolve
from harness.types import Axes, Cell, Evidence, Spec, implementation


def level(recipe: str, arch: str, **settings: bool) -> Evidence:
    axes = Axes("toy_linear", Spec("reference"), Spec(recipe), arch=arch)
    return resolve(Cell("cell", axes, None), ReferenceProvider(**settings), arch).evidence


@pytest.mark.parametrize("rehearse", [True, False])
def test_only_what_would_be_traced_is_rehearsed(rehearse: bool) -> None:
    assert level("mxfp8_block_scaling", "sm103", rehearse=rehearse) is (
        Evidence.REHEARSED if rehearse else Evidence.TRACED
    )
    assert level("float8_current_scaling", "cpu", rehearse=rehearse) is Evidence.NATIVE
    assert level("mxfp8_block_scaling", "cpu", rehearse=rehearse) is Evidence.EMULATED
    assert level("mxfp8_block_scaling", "sm89", rehearse=rehearse, emulate=False) is Evidence.NEGATIVE


def test_values_are_wrong_in_a_rehearsal_and_invisible_to_tracing() -> None:
    traced = dataclasses.replace(FAULT, where={**FAULT.where, "provider": "reference"})
    unseen = execute_cell(cells_of(traced)[0])
    assert (unseen.evidence, unseen.findings) == (Evidence.TRACED, ())
    seen = execute_cell(cells_of(FAULT)[0])
    assert seen.evidence is Evidence.REHEARSED
    assert seen.findings[0].check == "numerics.kernel"
    assert "0.00017" in seen.findings[0].expected  # the bound of the CPU's kernels, not that of tensor cores


def test_a_rehearsal_is_not_another_implementation() -> None:
    assert implementation("reference(rehearse=true)") == implementation("reference") == "reference"
    assert implementation("reference+a(emulate=false,rehearse=true)") == "reference+a(emulate=false)"
