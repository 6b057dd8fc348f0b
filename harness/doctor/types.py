"""What doctor found out, as plain values: the content of ``runner.py doctor --json``."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.types import SCHEMA_VERSION


class Status(str, enum.Enum):
    """How one line is to be taken. ``fatal``: no matrix can be run here before it is mended."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"
    FATAL = "fatal"


class Answer(str, enum.Enum):
    """What came of asking a provider."""

    USABLE = "usable"
    UNAVAILABLE = "unavailable"  # it says so itself: its cells are skipped
    ERROR = "error"  # it raised
    DIED = "died"  # its process was killed, ended itself or did not answer in time


@dataclass(frozen=True)
class Item:
    """One line about the stack. ``fix`` is a shell command, or empty where no command mends it."""

    topic: str
    status: Status
    text: str
    fix: str = ""


@dataclass(frozen=True)
class Gpu:
    """One GPU as torch sees it, by torch's index. ``error``: what a first small kernel raised there."""

    index: int
    name: str
    arch: str  # "sm90"
    capability: str  # "9.0"
    memory_mib: int
    free_mib: int
    error: str = ""


@dataclass(frozen=True)
class RecipeSupport:
    """A provider's belief about one recipe here.

    ``level``: native, emulated, unsupported (entering raises its documented error), absent (the library has no such
    recipe) or error (the question raised). ``reason``: the library's own words. ``disputed``: what the judge's support
    table says instead, where a cell would be red for it.
    """

    recipe: str
    level: str
    reason: str = ""
    disputed: str = ""


@dataclass(frozen=True)
class ProviderReport:
    """One provider, asked in a process of its own. ``arch``: the architecture that the levels are for.

    ``reason`` and ``fix``: why it isn't usable. ``output``: the last lines that a process printed which did not answer.
    """

    provider: str  # label
    answer: Answer
    arch: str = ""
    reason: str = ""
    fix: str = ""
    recipes: tuple[RecipeSupport, ...] = ()
    findings: tuple[Item, ...] = ()
    output: tuple[str, ...] = ()


@dataclass(frozen=True)
class Variable:
    """An environment variable that changes counts or results.

    ``effect``: ``refused`` (a run doesn't start), ``needs --allow-env``, or ``recorded`` (honoured, in run.json).
    """

    name: str
    value: str
    effect: str
    text: str = ""


@dataclass(frozen=True)
class Shortfall:
    """A recipe of a provider that can't reach the level that the matrix requires.

    ``best``: the best level that one of its cells can pass with here, ``none`` where it can pass with nothing.
    ``next``: what to do, in words; ``command`` does it.
    """

    provider: str
    recipe: str
    required: str
    best: str
    why: str
    next: str
    command: str


@dataclass(frozen=True)
class MatrixRow:
    """How many cells of one recipe on one provider would give which evidence here.

    ``skip`` cells are skipped with a reason; ``unknown`` ones belong to a provider that could not be asked. ``met``:
    False for a recipe that falls short of ``require``.
    """

    provider: str
    recipe: str
    cells: int
    native: int = 0
    emulated: int = 0
    rehearsed: int = 0
    traced: int = 0
    negative: int = 0
    skip: int = 0
    unknown: int = 0
    best: str = "none"
    met: bool = True


@dataclass(frozen=True)
class MatrixReport:
    """What a matrix would come to on this machine if every cell passed that can."""

    matrix: str  # path
    name: str
    require: str
    cells: int
    met: bool
    rows: tuple[MatrixRow, ...]
    shortfalls: tuple[Shortfall, ...] = ()
    notes: tuple[str, ...] = ()
    command: str = ""  # runs what can be met here, where that is less than all


@dataclass(frozen=True)
class Report:
    """All of it. ``arch``: this machine's resolved architecture, empty where torch could not be asked."""

    arch: str
    stack: tuple[Item, ...]
    gpus: tuple[Gpu, ...] = ()
    visible_devices: str = ""  # how CUDA_VISIBLE_DEVICES stands
    providers: tuple[ProviderReport, ...] = ()
    environment: tuple[Variable, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    matrix: MatrixReport | None = None
    exit_code: int = 0
    exit_reason: str = ""
    schema_version: int = SCHEMA_VERSION
