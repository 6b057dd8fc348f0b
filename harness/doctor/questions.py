"""What the front asks a child process, and what it is answered: JSON in both directions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import TypeAdapter

from harness.doctor.types import Gpu
from harness.serialize import to_jsonable
from harness.types import Axes, Cell, Spec

T = TypeVar("T")


@dataclass(frozen=True)
class Program:
    """What a cell's evidence depends on."""

    axes: Axes
    inner: Spec | None


@dataclass(frozen=True)
class Request:
    """``provider`` None: tell of torch and the GPUs. Else ask that provider about every recipe and ``programs``.

    ``seconds``: after so long the child writes where it hangs and ends.
    """

    seconds: float
    provider: Spec | None = None
    programs: tuple[Program, ...] = ()


@dataclass(frozen=True)
class TorchFacts:
    """torch as it is in a fresh process. Versions are texts, empty where there is none.

    ``cudnn``: version, or what torch raised when asked (then ``cudnn_fix`` may mend it, and ``cudnn_ok`` is False).
    ``warnings``: what torch said while it looked for GPUs, such as a driver that is too old.
    """

    version: str
    git: str = ""
    cuda: str = ""
    hip: str = ""
    runtime: str = ""
    driver_cuda: str = ""
    cublaslt: str = ""
    cudnn: str = ""
    cudnn_ok: bool = True
    cudnn_fix: str = ""
    compiled_for: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    arch: str = "cpu"


@dataclass(frozen=True)
class Belief:
    """A provider's ``Support`` of one recipe, or what its question raised (level ``error``)."""

    recipe: Spec
    level: str
    reason: str = ""
    offered: bool = True


@dataclass(frozen=True)
class ProgramAnswer:
    """``evidence``: as the run would resolve it. ``skipped``: the reason why the cell would be skipped, or empty.

    ``error``: what the question raised, and then there is no evidence.
    """

    program: Program
    arch: str
    evidence: str
    beliefs: tuple[Belief, ...] = ()
    skipped: str = ""
    error: str = ""


@dataclass(frozen=True)
class Finding:
    """A ``DoctorFinding``."""

    topic: str
    ok: bool
    text: str
    fix: str = ""


@dataclass(frozen=True)
class ProviderFacts:
    """What a provider said of itself. ``unavailable`` or ``error``: why there is nothing else.

    ``cuda``: the toolkit of torch, as the judge's support table is asked; None for a torch without.
    """

    arch: str
    cuda: tuple[int, int] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    unavailable: str = ""
    error: str = ""
    fix: str = ""
    beliefs: tuple[Belief, ...] = ()
    findings: tuple[Finding, ...] = ()
    answers: tuple[ProgramAnswer, ...] = ()


def program_of(cell: Cell) -> Program:
    return Program(cell.axes, cell.inner)


def dump(value: Any) -> str:
    return json.dumps(to_jsonable(value), ensure_ascii=True, allow_nan=False)


def parse(kind: type[T], text: str | bytes) -> T:
    """Inverse of :func:`dump`.

    Raises:
        ValueError: not such a value.
    """
    return TypeAdapter(kind).validate_json(text)
