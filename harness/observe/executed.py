"""Cells that execute (native and emulated): eager twice, then compiled, profiled, steady; or a documented refusal."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import torch

from harness.observe.census import CensusObserver, reset_compiler
from harness.observe.evidence import profile_step
from harness.observe.kept import KeptWatch
from harness.observe.operators import OperatorWatch
from harness.observe.probe import probe
from harness.observe.recorder import Recorder
from harness.observe.run import Batches, EnterPhase, Forward, MakeStep, buffers_of, parameters_of, run_step, run_steps
from harness.observe.subject import REFUSAL_CALLS, STEADY_CALLS, Subject, as_arch
from harness.observe.types import ErrorSeen, Kept, LaterCall, Observations, RunSeen, StepTensors
from harness.program import Program, Step
from harness.providers.protocol import Provider, TapRecord
from harness.types import Raises, Spec


def observe_executed(subject: Subject, recorder: Recorder) -> Observations:
    """Observe a native or emulated cell; every exception of the product becomes part of the observations."""
    obs = Observations(subject.evidence, subject.arch, rebuild=subject.rebuild)
    with as_arch(subject.provider, subject.arch):
        program = _built(subject, recorder)
        if program is None:
            return obs
        # One more than the judged steps: the first of the later ones is for the oracle too.
        batches = Batches(program, subject.axes, kept=program.expects.steps + 1)
        run = _Run(subject, recorder, batches, subject.raises(program))
        obs = replace(obs, expects=program.expects, parameters=parameters_of(program))
        if subject.axes.target:
            obs = replace(obs, buffers=buffers_of(program))
        obs = run.first_eager(obs, program)
        operators = OperatorWatch()
        obs = replace(obs, eager_again=run.eager(_built(subject, recorder), "after eager again", operators.watching))
        obs = replace(obs, eager_errors=tuple(run.wrong), operators=operators.seen())
        with recorder.under(program.settings):
            obs = replace(run.compiled(obs), batches=batches.drawn()[: program.expects.steps])
        run.raise_inside(program)
        obs = replace(obs, state_moves=run.state_moves, kept=run.kept)
        return replace(obs, facts=probe(subject, recorder, program))


def _built(subject: Subject, recorder: Recorder) -> Program | None:
    """The program, built anew for one run on the provider in its initial state; None when building raised."""
    recorder.reset_provider()
    with recorder.part("build", "after build", stateless=True):
        return subject.rebuild(subject.provider)
    return None


@dataclass
class _Run:
    """The runs of one cell. Each has a program of its own: parameters, gradients, provider state are never shared."""

    subject: Subject
    recorder: Recorder
    batches: Batches
    raises: Raises | None
    wrong: list[ErrorSeen] = field(default_factory=list)  # of eager runs that are known to be wrong
    state_moves: int | None = None  # keys of the state that changed inside a region
    kept: Kept | None = None  # what the steady calls left in use

    def first_eager(self, obs: Observations, program: Program) -> Observations:
        """The first eager run, which shows whether the program draws random numbers.

        A user's own that does runs once more, each step's draws now from a seed, as in every run after it: only then
        do compiled steps, and later ones beside eager steps, draw the same. A library's cases draw none.
        """
        seen = self.eager(program, "after eager", timed="eager_s")
        if program.expects.draws or rounds_at_random(self.subject.axes.recipe):
            self.recorder.allow_rng_of_program()
        self.batches.draws = bool(self.subject.axes.target) and self.recorder.program_uses_rng
        if self.batches.draws and seen is not None:
            seen = self.eager(_built(self.subject, self.recorder), "after eager, draws seeded")
        return replace(obs, eager=seen, draws=self.batches.draws)

    def eager(
        self,
        program: Program | None,
        moment: str,
        watching: Callable[[], AbstractContextManager[object]] = nullcontext,
        *,
        timed: str = "",
    ) -> RunSeen | None:
        """All steps without compilation, under the tap and ``watching``; None when an exception ended them."""
        if program is None:
            return None
        phase = "enter" if self.raises is not None and self.raises.phase == "enter" else "eager"
        with self.recorder.part(phase, moment, timed=timed) as part, self.subject.provider.tap() as records:
            make = self._steps(compiled=False)
            with watching():
                return run_steps(
                    program, self.batches, records, program.forward, part.enter_phase, (phase, phase), make
                )
        if program.expects.eager_is_wrong and part.error is not None:
            self.recorder.errors.remove(part.error)
            self.wrong.append(part.error)
        return None

    def _steps(self, *, compiled: bool) -> MakeStep:
        """Steps that know the provider and can compare its state with that at their start."""

        def make(index: int, forward: Forward, recipes: tuple[object, ...], inputs: tuple[torch.Tensor, ...]) -> Step:
            before = self.recorder.states()
            how = "compiled" if compiled else "eager"

            def unchanged(moment: str) -> None:
                self.recorder.compare_states(before, f"{moment}, {how} step {index}")

            provider = self.subject.provider
            return Step(index, forward, recipes, inputs, compiled, provider, unchanged, self.recorder.reset_provider)

        return make

    def compiled(self, obs: Observations) -> Observations:
        """The compiled half: refused where a refusal is documented, else observed in full."""
        if self.raises is not None and self.raises.phase == "enter":
            return obs  # no region opens, not even eagerly
        program = _built(self.subject, self.recorder)
        if program is None:
            return obs
        with CensusObserver(self.subject.provider.fp8_ops) as observer:
            compiled = self.subject.compile(program, observer, self.subject.axes.backend)
            if self.raises is None:
                obs = self._accepted(obs, program, observer, compiled)
            else:
                obs = self._refused(obs, program, compiled, self.raises.phase)
        return replace(obs, census=observer.census())

    def _accepted(
        self, obs: Observations, program: Program, observer: CensusObserver, compiled: Forward
    ) -> Observations:
        """First calls under the tap (the eager run's batches), one profiled step, ten steady calls."""
        provider = self.subject.provider
        with self.recorder.part("compile", "after compile", timed="compile_s") as part, provider.tap() as records:
            forward = _counted(observer, compiled, records)
            phases = ("compile", "run")
            make = self._steps(compiled=True)
            seen = run_steps(program, self.batches, records, forward, part.enter_phase, phases, make)
            obs = replace(obs, compiled=seen)
        if part.failed:
            return obs
        first = program.expects.steps
        later: dict[int, StepTensors] = {}
        with self.recorder.part("run", "after the profiled step", timed="profile_s") as part:
            profile = profile_step(
                lambda: later.update({first: self._compiled_step(program, first, compiled, part.enter_phase)}),
                all_threads=program.own_threads,
            )
            part.enter_phase("run")
            obs = replace(obs, gemms=tuple(provider.gemms(profile)))
        if not part.failed:
            later.update(self._steady(program, observer, compiled))
        return replace(obs, later=self._beside_eager(later))

    def _compiled_step(self, program: Program, index: int, forward: Forward, enter_phase: EnterPhase) -> StepTensors:
        return run_step(program, self.batches, index, forward, enter_phase, self._steps(compiled=True))

    def _beside_eager(self, seen: dict[int, StepTensors]) -> tuple[LaterCall, ...]:
        """Each later compiled call with an eager step on its batch: a fresh program, the tap off."""
        program = _built(self.subject, self.recorder)
        if program is None:
            return ()
        calls: list[LaterCall] = []
        first = min(seen, default=0)
        with self.recorder.part("eager", "after the eager steps beside the later calls"):
            make = self._steps(compiled=False)
            # Weights of later steps rest on all the steps before; so may whatever else a user's module keeps.
            if program.update is not None or self.subject.axes.target:
                for index in range(first):
                    run_step(program, self.batches, index, _sound(program), make_step=make)
            for index, compiled in seen.items():
                name = "profiled call" if index == first else f"steady call {index - first}"
                eager = run_step(program, self.batches, index, _sound(program), make_step=make)
                batch = self.batches.drawn()[first] if index == first else None
                calls.append(LaterCall(name, index > first, compiled, eager, index, batch))
        return tuple(calls)

    def raise_inside(self, program: Program) -> None:
        """An exception raised inside the program's regions must arrive, and leave no state: eagerly in every cell,
        compiled where fullgraph allows a Python exception at all.

        The eager one also shows that snapshots see a region at all: inside it the state is another one."""
        if self.raises is not None and self.raises.phase == "enter":
            return
        outside = self.recorder.states()

        def inside() -> None:
            if program.recipes():
                self.state_moves = self.recorder.moved(outside)

        forwards = [("eager", _raising(self.subject.provider, inside))]
        if self.raises is None and not self.subject.axes.fullgraph:
            reset_compiler()
            forwards.append(("compiled", torch.compile(_raising(self.subject.provider), backend="eager")))
        for name, forward in forwards:
            moment = f"after an exception inside the region, {name}"
            with self.recorder.part("eager" if name == "eager" else "run", moment):
                arrived = False
                try:
                    forward(program.recipes(), torch.ones(1, device=self.subject.device))
                except RaisedInside:
                    arrived = True
                if not arrived:
                    raise RuntimeError(f"an exception raised inside a region never arrived ({name})")

    def _steady(self, program: Program, observer: CensusObserver, compiled: Forward) -> dict[int, StepTensors]:
        provider = self.subject.provider
        milliseconds: list[float] = []
        seen: dict[int, StepTensors] = {}
        first = program.expects.steps + 1  # after the profiled step's batch
        watch = KeptWatch(self.subject.device, program.model, seen)
        with self.recorder.part("run", "after the steady calls") as part, observer.steady():
            watch.start()
            for index in range(first, first + STEADY_CALLS):
                part.enter_phase("run")
                # A tap for each call: what it remembers of ten more steps is of no use, and nothing that is kept.
                with provider.tap() as records:
                    forward = _counted(observer, compiled, records)
                    started = time.perf_counter()
                    seen[index] = self._compiled_step(program, index, forward, part.enter_phase)
                    milliseconds.append((time.perf_counter() - started) * 1e3)
                del records, forward
                watch.after_call()
            self.kept = watch.seen()
        if milliseconds:
            self.recorder.timing["steady_ms"] = round(statistics.median(milliseconds), 3)
        return seen

    def _refused(self, obs: Observations, program: Program, compiled: Forward, phase: str) -> Observations:
        """Compiled calls that must all be refused, and an eager region that must work after them."""
        for attempt in range(1, REFUSAL_CALLS + 1):
            with self.recorder.part(phase, f"after refusal {attempt}") as part:
                self._compiled_step(program, 0, compiled, part.enter_phase)
            if not part.failed:
                self.recorder.notes.append(f"compiled call {attempt} of {REFUSAL_CALLS} was not refused")
        with self.recorder.part("eager", "after the region that follows the refusals"):
            run_step(program, self.batches, 0, _sound(program), make_step=self._steps(compiled=False))
        return replace(obs, compile_attempts=REFUSAL_CALLS)


def rounds_at_random(recipe: Spec) -> bool:
    """Whether a recipe asks for stochastic rounding: the library then draws, whatever the program does."""
    return recipe.as_dict().get("disable_stochastic_rounding") is False


def _sound(program: Program) -> Forward:
    """What eager code computes rightly: the program's forward, but for programs that say otherwise."""
    return program.sound if program.expects.eager_is_wrong and program.sound is not None else program.forward


class RaisedInside(Exception):
    """What the harness raises inside a region."""


def _raising(provider: Provider, inside: Callable[[], None] = lambda: None) -> Forward:
    """The program's recipes entered inside each other, and an exception in the innermost region, after ``inside``."""
    autocast = provider.autocast

    def enter(recipes: tuple[object, ...], x: torch.Tensor) -> torch.Tensor:
        if not recipes:
            inside()
            raise RaisedInside
        with autocast(enabled=True, recipe=recipes[0]):
            return enter(recipes[1:], x + 1)

    return enter


def _counted(observer: CensusObserver, compiled: Forward, records: list[TapRecord]) -> Forward:
    return lambda *args: observer.call(compiled, *args, records=records)
