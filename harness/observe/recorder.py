"""What one cell's observation collects besides results: exceptions, state differences, notes, timing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from harness import torch_compat
from harness.observe.errors import describe_error
from harness.observe.process_state import process_state
from harness.observe.state import (
    RNG_PREFIXES,
    compiler_settings,
    diff,
    generator_states,
    provider_state,
    torch_state,
)
from harness.observe.torch_settings import as_found, read_settings
from harness.observe.types import ErrorSeen, StateDiff
from harness.providers.protocol import Provider


@dataclass
class Part:
    """A stretch of the observation that one exception of the product ends. ``phase`` moves as the part goes on."""

    phase: str
    error: ErrorSeen | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None

    def enter_phase(self, name: str) -> None:
        """From here on an exception belongs to phase ``name``."""
        self.phase = name


@dataclass
class Recorder:
    """Runs parts and keeps what they leave. State is compared from the start of a part to its end, so that a leak is
    reported where it happened and once.

    What was left stays in force for the program, as it would for a user. Whatever is read or compared *as tensors* is
    read under ``found``, torch's settings of before the cell: a mode that was left active must not break the reading.
    """

    provider: Provider
    errors: list[ErrorSeen] = field(default_factory=list)
    diffs: list[StateDiff] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    timing: dict[str, float] = field(default_factory=dict)
    state_keys: int = 0  # of the provider, at most
    program_uses_rng: bool = False  # set once an eager run moved torch's generators: then compiled runs may too
    found: Mapping[str, Any] = field(default_factory=lambda: read_settings(compiler=False))
    _settings: Mapping[str, Any] | None = None  # the compiler's, as last read

    @contextmanager
    def part(self, phase: str, moment: str, *, stateless: bool = False, timed: str = "") -> Iterator[Part]:
        """One part. Its exception is described, kept and swallowed; interrupts pass.

        Args:
            moment: names the comparison of states at the end, "after exception" replaces it.
            stateless: take no snapshots (building a model legitimately draws random numbers).
            timed: key of ``timing`` that receives the part's seconds when it succeeds.
        """
        part = Part(phase)
        # Settings are read at ends of parts only (800 of them): what changes one between two parts shows in the later.
        before = {} if stateless else self.snapshot(settings=self._settings)
        started = time.perf_counter()
        cause: Exception | None = None
        try:
            yield part
        except Exception as error:  # the product's, whatever it is: it becomes an observation
            cause = error
            part.error = describe_error(error, part.phase)
            self.errors.append(part.error)
        else:
            if timed:
                self.timing[timed] = round(time.perf_counter() - started, 4)
        if stateless:
            return
        try:
            self.compare(before, f"after exception ({part.phase})" if part.failed else moment)
        except Exception as error:
            if cause is None:
                raise
            raise error from cause  # in a lost CUDA context whoever looks next fails: that error explains nothing

    def snapshot(self, settings: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """The provider's state and torch's, generators included, and the compiler's settings: read, or as given."""
        self._settings = compiler_settings() if settings is None else settings
        left = self._process_wide()
        with as_found(self.found):
            provided = provider_state(self.provider)
            self.state_keys = max(self.state_keys, len(provided))
            return {**provided, **left, **generator_states(), **self._settings}

    @contextmanager
    def under(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """The program's compiler settings in force for a while; they are no leak of the parts inside."""
        with torch_compat.patched_compile_config(settings):
            self._settings = None
            yield
        self._settings = None

    def states(self) -> Mapping[str, Any]:
        """The provider's state and torch's, without generators and compiler settings: cheap enough for each step."""
        left = self._process_wide()
        with as_found(self.found):
            return {**provider_state(self.provider), **left}

    def compare_states(self, before: Mapping[str, Any], moment: str) -> None:
        """Keep what differs between ``before`` (of :meth:`states`) and now."""
        after = self.states()
        with as_found(self.found):
            self.diffs += diff(before, after, moment)

    def moved(self, before: Mapping[str, Any]) -> int:
        """How many keys differ between ``before`` (of :meth:`states`) and now; none of them is kept."""
        now = self.states()
        with as_found(self.found):
            return len(diff(before, now, "inside a region"))

    def compare(self, before: Mapping[str, Any], moment: str, *, rng: bool = True) -> None:
        """Keep what differs between ``before`` and now; generators too, unless the program moves them itself."""
        after = self.snapshot()
        with as_found(self.found):
            changed = diff(before, after, moment)
        if self.program_uses_rng or not rng:
            changed = tuple(item for item in changed if not item.key.startswith(RNG_PREFIXES))
        self.diffs += changed

    def unlike(self, before: Mapping[str, Any]) -> bool:
        """Whether something of torch's is not now as in ``before`` (a snapshot), generators and compiler aside."""
        now = self._process_wide()
        return bool(diff({key: before[key] for key in now if key in before}, now, ""))

    def reset_provider(self) -> None:
        """Reset the provider; objects that compiled graphs may hold must be the same ones afterwards.

        Identities are compared over each single reset: over several, a new object can take the first one's address.
        """
        before = self._identities()
        self.provider.reset()
        known = {item.key for item in self.diffs if item.moment == "reset"}
        self.diffs += [item for item in diff(before, self._identities(), "reset") if item.key not in known]

    @staticmethod
    def _process_wide() -> dict[str, Any]:
        return {**torch_state(rng=False), **process_state()}

    def _identities(self) -> Mapping[str, Any]:
        return {key: value for key, value in provider_state(self.provider).items() if key.endswith(".id")}

    def allow_rng_of_program(self) -> None:
        """Called after the first eager run of a program that says it may draw: generators that it moved are the
        program's own doing, not a leak."""
        moved = [item for item in self.diffs if item.key.startswith(RNG_PREFIXES)]
        if moved:
            self.program_uses_rng = True
            self.diffs = [item for item in self.diffs if item not in moved]
            self.notes.append("the program draws random numbers: generator states are not compared")
