"""Where a fault must show: its cell and the clean twin."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from harness.faults import FAULTS
from harness.faults.cell import cells_of
from harness.faults.fault import Fault
from harness.plan import MatrixErrors
from harness.registry import load


def fault(**where: Any) -> Fault:
    return Fault("leaky_exit", "a test", "state.unchanged", lambda provider: nullcontext(provider), where=where)


def test_usual_cell_and_its_twin() -> None:
    faulty, twin = cells_of(fault())
    inner = "inner=float8_block_scaling"
    assert (
        faulty.id == f"toy_linear[provider=reference+leaky_exit,recipe=float8_current_scaling,nesting=nested,{inner}]"
    )
    assert twin.id == faulty.id.replace("+leaky_exit", "")


def test_where_moves_it() -> None:
    faulty, twin = cells_of(fault(case="autocast_outside", recipe="mxfp8_block_scaling", backend="eager"))
    assert (faulty.axes.case, faulty.axes.nesting, twin.axes.backend) == ("autocast_outside", "flat", "eager")


def test_a_provider_with_settings_keeps_them() -> None:
    faulty, twin = cells_of(fault(provider={"name": "reference", "emulate": False}))
    assert (faulty.axes.provider.label, twin.axes.provider.label) == (
        "reference+leaky_exit(emulate=false)",
        "reference(emulate=false)",
    )


def test_delayed_scaling_is_asked_for_its_refusal() -> None:
    assert cells_of(fault(recipe="delayed_scaling"))[0].expect.raises is not None
    assert cells_of(fault())[0].expect.raises is None


@pytest.mark.parametrize("where", [{"recipe": "float8_curent"}, {"case": "autocast_outside", "variant": "none"}])
def test_a_cell_that_no_matrix_could_hold_is_an_error(where: dict[str, Any]) -> None:
    with pytest.raises(MatrixErrors):
        cells_of(fault(**where))


def test_several_cells_are_an_error() -> None:
    with pytest.raises(ValueError, match="names 2 cells"):
        cells_of(fault(seed=[0, 1]))


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_every_registered_fault_has_its_cell(name: str) -> None:
    registered: Fault = load(FAULTS[name])
    faulty, twin = cells_of(registered)
    assert registered.name == name
    assert name in faulty.axes.provider.name
    assert name not in twin.axes.provider.name
