"""What a baseline holds: a finished run's measurements, cell by cell, as a budget for later runs (docs/baselines.md).

Types alone, so that every process can read a plan that carries one. ``harness.plan.baseline`` reads and writes the
file and lowers budgets, ``harness.report.baseline`` holds a finished run against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.types import SCHEMA_VERSION

# More of these than measured is worse, and the cell's own checks say so: no more than measured is allowed then.
BUDGETED = ("graphs", "graph_breaks", "recompiles", "eager_frames")
COUNTS = (*BUDGETED, "unimplemented", "steady_compiles")

# Weakest first. A recipe that was traced and is now refused as unsupported (negative) has lost something.
EVIDENCE_ORDER = ("none", "negative", "traced", "rehearsed", "emulated", "native")

# What can move a count. Python, pytest and the harness itself are in run.json.
PRODUCT_VERSIONS = ("torch", "cuda", "triton", "transformer_engine", "torchao")


@dataclass(frozen=True)
class Environment:
    """Where something was measured. ``arch`` is the machine's own, never host; what isn't installed is left out."""

    arch: str
    gpu: str = ""  # as the driver names it; empty without one
    versions: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        machine = f"{self.arch} ({self.gpu})" if self.gpu else self.arch
        order = dict.fromkeys((*PRODUCT_VERSIONS, *self.versions))
        return ", ".join([machine, *(f"{name} {self.versions[name]}" for name in order if name in self.versions)])

    def changes(self, now: Environment) -> list[str]:
        """What is different ``now``, in words; the architecture is not asked for, since it must not differ."""
        gpu = [f"gpu {self.gpu} -> {now.gpu}"] if self.gpu != now.gpu else []
        names = [name for name in PRODUCT_VERSIONS if self.versions.get(name) != now.versions.get(name)]
        return gpu + [f"{n} {self.versions.get(n, 'none')} -> {now.versions.get(n, 'none')}" for n in names]


@dataclass(frozen=True)
class BaselineCell:
    """One cell as measured. A count is None where nothing was there to be counted (a refusal, a skip, no profile).

    ``graph_breaks``: break sites or Dynamo's own counter, whichever is more; ``unimplemented``: constructs that Dynamo
    reported as unsupported. ``fp8_gemms``: FP8 GEMMs of one profiled step, native and emulated. ``fp8_judged``: the FP8
    arithmetic was held against the oracle. ``environment`` is set where the entry was kept from an earlier environment
    than the file's.
    """

    id: str
    arch: str  # resolved
    verdict: Literal["pass", "xfail", "skip"]
    evidence: Literal["native", "emulated", "rehearsed", "traced", "negative", "none"]
    fp8_judged: bool
    graphs: int | None
    graph_breaks: int | None
    recompiles: int | None
    eager_frames: int | None
    unimplemented: int | None
    steady_compiles: int | None
    fp8_gemms: int | None
    environment: Environment | None = None


@dataclass(frozen=True)
class Baseline:
    """A whole file. ``matrix`` is the name of the matrix that was run, not its path."""

    matrix: str
    environment: Environment
    cells: tuple[BaselineCell, ...]
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class BaselineUse:
    """A baseline as one run uses it, part of that run's plan.

    ``lines``: the line of each entry in ``file``, by id. ``here``: this machine. ``gone``: entries that the full plan
    has no cell for, and ``gone_because`` why that is no red; empty where it is one.
    """

    file: str
    baseline: Baseline
    here: Environment
    lines: Mapping[str, int] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    gone_because: str = ""

    def place(self, cell_id: str) -> str:
        """``file:line`` of an entry."""
        return f"{self.file}:{self.lines[cell_id]}" if cell_id in self.lines else self.file
