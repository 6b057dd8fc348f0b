"""Observations: everything measured about one cell, before anything is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.providers.protocol import GemmRecord, ProgramProvider, TapRecord
from harness.types import Evidence

if TYPE_CHECKING:
    import torch

    from harness.program import Expects, Program


@dataclass(frozen=True)
class Break:
    """One graph-break site: first user line, the normalised reason, and how often it fired (restarts included)."""

    reason: str
    site: str  # file:line of the user's code, innermost user frame
    events: int = 1


@dataclass(frozen=True)
class ErrorSeen:
    """An exception that reached the harness. ``chain`` goes from the raised exception to its root cause.

    Each link is (class names along the MRO joined with '<', message). ``phase``: build, enter, eager, compile, run
    (a compiled call after the first), backward, trace. Of type ``NothingRaised``: an entry of a negative cell that
    should have raised and did not.
    """

    phase: str
    type: str
    message: str
    chain: tuple[tuple[str, str], ...]
    site: str = ""
    stack: str = ""


@dataclass(frozen=True)
class CallSeen:
    """FP8 linear calls of one compiled call: captured in graphs that ran, and executed by the provider. Calls that AOT
    merged with an equal one, or dropped as unused, are not in its graphs and not counted."""

    captured: int
    executed: int


@dataclass(frozen=True)
class Census:
    """What Dynamo and AOT did while the compiled program ran. Each field is blind somewhere (docs/census.md)."""

    frames_total: int = 0
    frames_ok: int = 0
    graphs: int = 0  # unique forward graphs given to the backend
    empty_graphs: int = 0
    backward_graphs: int = 0
    breaks: tuple[Break, ...] = ()
    counter_breaks: int = 0  # sum of counters["graph_break"]
    unimplemented: tuple[str, ...] = ()
    recompiles: tuple[str, ...] = ()  # reasons
    recompile_limit_hits: int = 0
    calls: tuple[CallSeen, ...] = ()  # first call first; warm-up and steady calls
    dropped_calls: int = 0  # FP8 calls of Dynamo's graphs that AOT merged with an equal one, or found unused
    steady_compiles: int = 0  # compilations, forward or backward, during the steady calls
    config: Mapping[str, Any] = field(default_factory=dict)  # Dynamo settings that shift counts

    @property
    def eager_frames(self) -> int:
        """Frames that Dynamo gave up on: they ran in Python."""
        return self.frames_total - self.frames_ok


@dataclass(frozen=True)
class Batch:
    """One step's data, on the device. ``grad_output`` is what backward starts from."""

    inputs: tuple[torch.Tensor, ...]
    grad_output: torch.Tensor


@dataclass(frozen=True)
class StepTensors:
    """Result of one forward and backward, each tensor with its own storage.

    ``grads``: "input0" for the first input, parameter names ("layers.0.weight") for parameters. ``weights``: the
    parameters by name as the program's update left them; empty for a program that doesn't change its weights.
    ``returned``: the output itself, of which ``output`` is a copy; kept as a user keeps it, so that no later call can
    rightly use its memory. Its values may have been overwritten; only where it lies is looked at.
    """

    output: torch.Tensor
    grads: Mapping[str, torch.Tensor]
    weights: Mapping[str, torch.Tensor] = field(default_factory=dict)
    returned: torch.Tensor | None = None


@dataclass(frozen=True)
class RunSeen:
    """One run of the program (eager or compiled) over its steps, with what the tap saw."""

    steps: tuple[StepTensors, ...]
    records: tuple[TapRecord, ...]
    layers: Mapping[int, str]  # weight data_ptr -> module name, to name layers in messages
    steps_of_records: tuple[int, ...] = ()  # index of the step that each record belongs to


@dataclass(frozen=True)
class LaterCall:
    """A compiled call after the first ones, beside an eager step on the same batch by a program of its own.

    ``tapped``: whether the provider's tap was on during the compiled call; it never is during the eager step, so a
    provider that behaves only while it is watched shows here.
    """

    name: str  # "profiled", "steady 1"...
    tapped: bool
    compiled: StepTensors
    eager: StepTensors
    index: int = 0  # of the step
    batch: Batch | None = None  # that of the first of them, which the judge's oracle is given too


@dataclass(frozen=True)
class ProductSeen:
    """One FP8 operator that ran under fake tensors. ``product`` and ``phase`` as in TapRecord, ``recipe`` the label of
    the recipe that it was given."""

    recipe: str
    product: str
    phase: str


@dataclass(frozen=True)
class TracedStep:
    """One compiled step under fake tensors. ``shapes``: of the "output", and of the gradient of each leaf that got one,
    named as in StepTensors. ``products`` is None where the provider doesn't say which operator is which product."""

    shapes: Mapping[str, tuple[int, ...]]
    products: tuple[ProductSeen, ...] | None = None


@dataclass(frozen=True)
class Fact:
    """What a case's probe stated, as text. ``expected`` unequal to ``seen`` is a finding (``case.facts``)."""

    name: str
    expected: str
    seen: str


@dataclass(frozen=True)
class StateDiff:
    """State that was not as before. ``moment``: after eager, compile, exception, steady calls, reset..."""

    moment: str
    key: str
    before: str
    after: str


@dataclass(frozen=True)
class Left:
    """Memory that a stretch of calls (0, 1, 2) made and that is in use after the last call: bytes, and a tensor that
    lies there in words ("(128, 256) bfloat16 on cpu")."""

    stretch: int
    bytes: int
    what: str


@dataclass(frozen=True)
class Handles:
    """How many files a process has open, and how many threads it has."""

    files: int
    threads: int


@dataclass(frozen=True)
class Kept:
    """What ``calls`` steady calls left in use (:mod:`harness.observe.kept`). ``allocated``: bytes of the GPU in use
    after each call, without those that the harness keeps; empty on the CPU. ``handles``: before the calls, after each
    of the three stretches, and after the last call."""

    calls: int
    left: tuple[Left, ...] = ()
    allocated: tuple[int, ...] = ()
    handles: tuple[Handles, ...] = ()


@dataclass(frozen=True)
class OperatorSeen:
    """One tensor that an operator returned in eager code, beside what its fake implementation says of it: shape, dtype,
    strides and kind of device in words ("(128, 256) bfloat16, strides (256, 1), on cpu")."""

    name: str
    promised: str
    returned: str


@dataclass(frozen=True)
class Observations:
    """All of one cell. ``None`` means that this part was not reached or does not apply to the evidence level.

    ``rebuild(provider)`` makes the same program, same seed, on another provider (the judge's oracle, in float64).
    ``batches`` are those of the eager steps; ``parameters`` the initial values by name.
    """

    evidence: Evidence
    arch: str
    expects: Expects | None = None
    rebuild: Callable[[ProgramProvider], Program] | None = None
    parameters: Mapping[str, torch.Tensor] = field(default_factory=dict)
    buffers: Mapping[str, torch.Tensor] = field(default_factory=dict)  # of a user's own program, which may draw them
    batches: tuple[Batch, ...] = ()
    draws: bool = False  # a user's own program that draws random numbers, each step from a seed of its own
    eager: RunSeen | None = None
    eager_again: RunSeen | None = None
    compiled: RunSeen | None = None
    later: tuple[LaterCall, ...] = ()
    census: Census | None = None
    traced: tuple[TracedStep, ...] = ()  # the steps of a traced cell, up to the first that raised
    gemms: tuple[GemmRecord, ...] | None = None
    errors: tuple[ErrorSeen, ...] = ()
    eager_errors: tuple[ErrorSeen, ...] = ()  # of eager runs that are known to be wrong (Expects.eager_is_wrong)
    compile_attempts: int = 0  # compiled calls tried when a refusal is expected
    facts: tuple[Fact, ...] | None = None  # None: the case has no probes at this evidence level
    state_diffs: tuple[StateDiff, ...] = ()
    state_keys: int = 0
    # Keys that changed when a region was entered: a snapshot that can't see a region sees no leak. None: not looked at.
    state_moves: int | None = None
    kept: Kept | None = None  # what the steady calls left in use
    operators: tuple[OperatorSeen, ...] = ()  # of the library, in the second eager run
    # The provider's belief about every recipe of the program on this architecture: label -> (level, reason, error).
    support: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)  # what the provider says of itself (Case.asks)
    timing: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def kernels(self) -> str:
        """The architecture whose kernels ran: the named one, but for a rehearsal, which runs on the CPU."""
        return "cpu" if self.evidence is Evidence.REHEARSED else self.arch
