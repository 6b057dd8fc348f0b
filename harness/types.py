"""The frozen types that every stage shares: specs, axes, cells, expectations, findings, results.

Nothing here imports torch: the front (``runner.py``) plans and reports without paying for it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Union

Scalar = Union[str, int, float, bool]

SCHEMA_VERSION = 1

RECIPES = (
    "delayed_scaling",
    "float8_current_scaling",
    "float8_block_scaling",
    "mxfp8_block_scaling",
    "nvfp4_block_scaling",
    "float8_rowwise_scaling",
)
ARCHES = ("host", "cpu", "sm89", "sm90", "sm100", "sm103", "sm120")
NESTINGS = ("flat", "nested", "nested_disabled", "deep", "sequential")
BACKENDS = ("eager", "aot_eager", "inductor")
DTYPES = ("bfloat16", "float16", "float32")
DATA_KINDS = ("normal", "positive", "heavy_tailed")

# A note by which a result tells the run that no later cell may use its process (a CUDA context that is lost).
RETIRE_WORKER = "retire-worker"
# Begins the note that says how many findings of each check a result does not hold.
NOT_KEPT = "findings that are not kept: "

# Steps that a traced cell runs at least: the second call meets whatever the first one cached.
MINIMUM_TRACED = 2

# The inner recipe of a nested region. Fixed, so that an id names one program for ever. The partner always has a
# different granularity from the outer recipe: a region that leaks its outer recipe inwards is then visible in bytes.
PARTNERS: Mapping[str, str] = {
    "delayed_scaling": "float8_current_scaling",
    "float8_current_scaling": "float8_block_scaling",
    "float8_block_scaling": "float8_current_scaling",
    "mxfp8_block_scaling": "float8_current_scaling",
    "nvfp4_block_scaling": "mxfp8_block_scaling",
    "float8_rowwise_scaling": "float8_current_scaling",
}


class Verdict(str, enum.Enum):
    """What became of one cell. ``flaky`` and ``infra`` are decided over attempts, the rest within one."""

    PASS = "pass"
    FAIL = "fail"
    XFAIL = "xfail"
    XPASS = "xpass"
    SKIP = "skip"
    ERROR = "error"
    TIMEOUT = "timeout"
    CRASH = "crash"
    OOM = "oom"
    INFRA = "infra"
    FLAKY = "flaky"

    @property
    def is_red(self) -> bool:
        """True when the cell is not as expected (a strict xfail that passes is red too)."""
        return self not in (Verdict.PASS, Verdict.XFAIL, Verdict.SKIP)


class Evidence(str, enum.Enum):
    """How much a cell's result rests on. Always shown, never mixed (docs/evidence.md)."""

    NATIVE = "native"
    EMULATED = "emulated"
    REHEARSED = "rehearsed"
    TRACED = "traced"
    NEGATIVE = "negative"
    NONE = "none"  # nothing was observed: the cell crashed, errored or was skipped before it ran


@dataclass(frozen=True)
class Spec:
    """A named thing with settings, as written in a matrix: a recipe or a provider.

    ``fields`` holds what the user wrote, sorted by name. ``label`` is the one spelling used in ids and reports:
    ``delayed_scaling(amax_history_len=16)``.
    """

    name: str
    fields: tuple[tuple[str, Scalar], ...] = ()

    @property
    def label(self) -> str:
        if not self.fields:
            return self.name
        inner = ",".join(f"{key}={scalar_text(value)}" for key, value in self.fields)
        return f"{self.name}({inner})"

    def as_dict(self) -> dict[str, Scalar]:
        return dict(self.fields)


def implementation(provider: str) -> str:
    """A provider's label without its setting ``rehearse``, which is how cells elsewhere are looked at, not another
    implementation: they must earn what ``require`` asks together with the rest."""
    return re.sub(r"\(rehearse=\w+\)|,rehearse=\w+", "", provider)


def scalar_text(value: Scalar) -> str:
    """One scalar as it stands in ids: booleans as YAML writes them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@dataclass(frozen=True)
class CaseEntry:
    """What planning knows of a registered case without importing it (and torch with it).

    ``path`` is ``module:attribute`` of its Case. ``variants`` are its programs where it has several: a matrix that
    names none runs them all. ``nestings`` and ``recipes`` are those that its programs are made for; anything else is
    an error of the matrix, so that no axis is ignored in silence. ``pair`` names the variants whose program has a
    second recipe (the partner of PARTNERS, which then stands in the id); ``("",)`` for a case without variants.
    """

    path: str
    variants: tuple[str, ...] = ()
    nestings: tuple[str, ...] = ("flat",)
    recipes: tuple[str, ...] = RECIPES
    pair: tuple[str, ...] = ()


@dataclass(frozen=True)
class Axes:
    """One combination of axis values. Field order is the schema order that ids follow."""

    case: str
    provider: Spec  # name may carry faults: "reference+leaky_exit"
    recipe: Spec
    arch: str = "host"
    fullgraph: bool = True
    nesting: str = "flat"
    variant: str = ""  # which of the case's programs; "" for a case that has one only
    target: str = ""  # "package.module:attribute" of the user's own program, for the case "target"
    backend: str = "aot_eager"
    dtype: str = "bfloat16"
    shape: tuple[int, int, int] = (128, 256, 128)  # M, K, N of the first layer
    data: str = "normal"
    dynamic: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Raises:
    """A documented error. ``match`` is a regular expression searched in every message of the exception chain.

    ``type`` is a class name; it matches the raised exception or any exception of its chain, base classes included.
    ``phase`` is where it must surface: ``enter`` (eager region entry), ``compile`` (each compiled call) or ``run``.
    """

    type: str
    match: str
    phase: str = "compile"


@dataclass(frozen=True)
class Budgets:
    """How much of each compile-time event is allowed (``None``: not judged)."""

    graph_breaks: int | None = 0
    recompiles: int | None = 0
    eager_frames: int | None = 0
    graphs: int | None = None  # None: what the case expects


@dataclass(frozen=True)
class Waiver:
    """A known red. ``kind`` is ``xfail`` (strict) or ``quarantine`` (runs, is shown, never gates).

    ``url`` is empty where no public report exists.
    """

    kind: str
    reason: str
    url: str
    owner: str
    expires: str  # ISO date
    versions: tuple[tuple[str, str], ...] = ()  # PEP 440 ranges for torch, te, cuda
    where: str = ""  # file:line of the entry
    when: tuple[tuple[str, Any], ...] = ()
    checks: tuple[str, ...] = ()  # the only checks that it forgives; empty: any


@dataclass(frozen=True)
class Expectation:
    """What the matrix demands of a cell, on top of what its case states.

    ``baseline``: what an earlier run measured. No more than that is allowed, whatever budgets and case say; a count of
    None is not judged. None without a baseline, or for a cell that it doesn't know.
    """

    budgets: Budgets = Budgets()
    raises: Raises | None = None
    waivers: tuple[Waiver, ...] = ()
    baseline: Budgets | None = None


@dataclass(frozen=True)
class Cell:
    """One planned cell.

    ``origin`` says where each setting came from ("schema default", "ci.yaml:12:5 matrix.recipe", "--set"), keyed by
    axis name or by ``budgets.graph_breaks``, ``raises``...; ``--plan`` prints it.
    """

    id: str
    axes: Axes
    inner: Spec | None
    expect: Expectation = Expectation()
    origin: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """One reason why a cell is red. ``check`` is the check's registered name, e.g. ``compile.eager_frames``."""

    check: str
    expected: str
    got: str
    where: str = ""  # tensor, op, operand, block... in words
    site: str = ""  # user's file:line, when there is one

    def __str__(self) -> str:
        place = f" [{self.where}]" if self.where else ""
        site = f" at {self.site}" if self.site else ""
        return f"{self.check}{place}: expected {self.expected}, got {self.got}{site}"


@dataclass(frozen=True)
class Attempt:
    """One try of a cell, recorded whether or not it became the verdict."""

    verdict: Verdict
    reason: str
    worker: str = ""
    seconds: float = 0.0
    gpu: str = ""  # in words; empty without a GPU


@dataclass(frozen=True)
class CellResult:
    """One line of results.jsonl (docs/schemas/results.schema.json)."""

    id: str
    axes: Mapping[str, Any]
    arch: str  # resolved
    provider: str
    case: str
    verdict: Verdict
    reason: str
    signature: str
    evidence: Evidence
    findings: tuple[Finding, ...] = ()
    checks: tuple[str, ...] = ()  # checks that were applied to this cell, by name
    notes: tuple[str, ...] = ()  # observations that are shown and not judged ("nondeterministic", "waiver ...")
    census: Mapping[str, Any] = field(default_factory=dict)
    numerics: Mapping[str, Any] = field(default_factory=dict)
    fp8: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    timing: Mapping[str, float] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    detail: str = ""  # stack or long text; shown once per group of reds
    repro: str = ""
    gates: bool = True  # False under a quarantine: shown, never decides the exit code
    worker: str = ""  # the process that its last attempt ran in
    gpu: Mapping[str, Any] = field(default_factory=dict)  # the only one that this process could see
    schema_version: int = SCHEMA_VERSION


def axes_dict(axes: Axes) -> dict[str, Any]:
    """Axes as plain JSON values: specs as labels, shape as a list."""
    return {
        "case": axes.case,
        "provider": axes.provider.label,
        "recipe": axes.recipe.label,
        "arch": axes.arch,
        "fullgraph": axes.fullgraph,
        "nesting": axes.nesting,
        "variant": axes.variant,
        "target": axes.target,
        "backend": axes.backend,
        "dtype": axes.dtype,
        "shape": list(axes.shape),
        "data": axes.data,
        "dynamic": axes.dynamic,
        "seed": axes.seed,
    }
