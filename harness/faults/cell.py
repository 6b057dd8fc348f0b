"""The cell in which a fault must show, and its clean twin: the same cell on the provider without the fault."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.faults.fault import Fault
from harness.plan.load import matrix_from_bytes
from harness.types import Cell

# What a fault's ``where`` leaves out.
USUAL: Mapping[str, Any] = {
    "case": "toy_linear",
    "provider": "reference",
    "recipe": "float8_current_scaling",
    "fullgraph": True,
    "nesting": "nested",
    "backend": "aot_eager",
}
# DelayedScaling compiles nowhere: that its refusal comes is what the usual case is asked (DESIGN section 6).
REFUSED = {
    "when": {"recipe": "delayed_scaling"},
    "raises": {"type": "RuntimeError", "match": "not supported under torch.compile", "phase": "compile"},
}


def cells_of(fault: Fault) -> tuple[Cell, Cell]:
    """The faulty cell and its clean twin. Raises as :func:`cell_and_twin`."""
    return cell_and_twin(fault, fault.name)


def cell_and_twin(fault: Fault, name: str) -> tuple[Cell, Cell]:
    """The faulty cell and its clean twin; ``name``: how the provider's name holds the fault.

    Raises:
        ValueError: ``where`` names no cell, or more than one (a case with variants needs one named).
        TypeError: ``where`` holds what no file could hold.
        MatrixErrors: ``where`` holds an axis or a value that a matrix could not hold.
    """
    pairs = crossed(fault, {}, name)
    if len(pairs) != 1:
        raise ValueError(f"where names {len(pairs)} cells, one is needed: {dict(fault.where)}")
    return pairs[0]


def crossed(fault: Fault, over: Mapping[str, Any], name: str = "") -> Sequence[tuple[Cell, Cell]]:
    """The fault's cell with the axis values ``over`` in place of its own, and the twin of each; lists make several.

    Args:
        name: how the provider's name holds the fault, where that is another than its own (an import path).

    Raises:
        MatrixErrors: an axis or a value that a matrix could not hold.
    """
    usual = dict(USUAL) if "case" not in {**fault.where, **over} else {**USUAL, "nesting": "flat"}
    axes = {**usual, **fault.where, **over}
    name = name or fault.name
    providers = axes["provider"] if isinstance(axes["provider"], list) else [axes["provider"]]
    faulty = _cells(name, {**axes, "provider": [_with_fault(provider, name) for provider in providers]})
    return list(zip(faulty, _cells(name, {**axes, "provider": providers}), strict=True))


def _with_fault(provider: Any, name: str) -> Any:
    if isinstance(provider, Mapping):
        if "name" not in provider:
            return provider  # the plan says what is missing
        return {**provider, "name": f"{provider['name']}+{name}"}
    return f"{provider}+{name}"


def _cells(name: str, axes: Mapping[str, Any]) -> Sequence[Cell]:
    refused = axes["case"] == USUAL["case"] and "delayed_scaling" in str(axes["recipe"])
    matrix = {"schema_version": 1, "include": [dict(axes)], "expect": [REFUSED] if refused else []}
    return matrix_from_bytes(json.dumps(matrix).encode(), Path(f"fault {name}")).full.cells
