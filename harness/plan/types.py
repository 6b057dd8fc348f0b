"""What planning produces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.plan.models import MatrixModel
from harness.plan.yamlfile import YamlMap
from harness.serialize import to_jsonable
from harness.types import Cell


@dataclass(frozen=True)
class Plan:
    """The cells of one run, in order.

    ``require`` is the evidence level that each supported recipe must reach (native, emulated or traced). ``digest``
    is the SHA-256 of name, require, ids and expectations, in hex: two processes that planned the same have the same.
    ``notes`` are what the user should know about how the plan came about.
    """

    name: str
    path: str
    require: str
    cells: tuple[Cell, ...]
    digest: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Matrix:
    """A matrix file that holds no mistakes. ``full`` is its plan as written, which its entries were judged against."""

    path: str
    name: str
    require: str
    full: Plan
    model: MatrixModel = field(repr=False)
    data: YamlMap = field(repr=False)  # the same content with places, for provenance


def make_plan(name: str, path: str, require: str, cells: Sequence[Cell], notes: Sequence[str] = ()) -> Plan:
    demands = [[cell.id, to_jsonable(cell.expect)] for cell in cells]
    text = json.dumps([name, require, demands], sort_keys=True, ensure_ascii=True)
    return Plan(name, path, require, tuple(cells), hashlib.sha256(text.encode()).hexdigest(), tuple(notes))
