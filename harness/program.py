"""What a case gives the harness: a program, and what the program is expected to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.types import Axes, Evidence, Raises, Spec

if TYPE_CHECKING:
    import torch

    from harness.probing import Probing
    from harness.providers.protocol import ProgramProvider, Provider


class NoOracle(Exception):
    """Raised by a builder on the judge's oracle when its program can't be made there; the message says why."""


@dataclass(frozen=True)
class CaseContext:
    """All that a case may use to build its program.

    ``provider`` is the FP8 implementation under test *or* the judge's oracle: the same builder makes both programs,
    so a case never describes its arithmetic twice. ``told``: what the provider under test says of itself, as plain
    values (:attr:`Case.asks`); the oracle's program gets the same. ``library()``: all of the state of the library
    under test (:meth:`Provider.snapshot`), on the oracle too. ``origin``: where the matrix names the program.
    """

    provider: ProgramProvider
    axes: Axes
    inner: Spec | None
    device: torch.device
    dtype: torch.dtype
    told: Mapping[str, Any] = field(default_factory=dict)
    library: Callable[[], Mapping[str, Any]] = dict
    origin: str = ""


@dataclass(frozen=True)
class StepExpects:
    """The FP8 products of one step as recipe labels, each kind in the order in which it runs.

    ``dgrad`` and ``wgrad`` default to ``fprop`` reversed: a step without a backward has ``()`` for both. ``recompute``
    are forward products that run again during backward.
    """

    fprop: tuple[str, ...]
    recompute: tuple[str, ...] = ()
    dgrad: tuple[str, ...] | None = None
    wgrad: tuple[str, ...] | None = None

    def of(self, product: str) -> tuple[str, ...]:
        """Labels of ``fprop``, ``recompute``, ``dgrad`` or ``wgrad``."""
        stated: tuple[str, ...] | None = getattr(self, product)
        return self.fprop[::-1] if stated is None else stated

    @property
    def products(self) -> tuple[str, ...]:
        """Labels of all products."""
        return self.fprop + self.recompute + self.of("dgrad") + self.of("wgrad")


@dataclass(frozen=True)
class Expects:
    """What a case states about its own program.

    ``fp8_linears`` names, in forward order, the recipe (its label) of every linear that must run in FP8; linears
    outside a region or in a disabled one are not listed. A program whose steps differ states ``schedule`` instead: step
    ``i`` runs ``schedule[i % len(schedule)]``, steady ones too; ``compiled_schedule`` where compiled code runs other
    products than eager code (AOT drops a recompute that nothing needs). ``steps`` is how many steps, each with new
    data, the numerics need (more than one for recipes with history).

    ``graphs``: forward graphs over all steps together; ``backward_graphs``: as many, by default. ``recompiles``,
    ``graph_breaks`` and ``eager_frames`` happen by design (one graph for each setting, a Python exception in a region);
    a matrix's budgets come on top.
    ``captured`` False: torch is known to run all FP8 calls in Python, outside of any graph.

    ``eager_is_wrong`` says why eager code is known to compute something else than the program asks for (torch's own
    checkpoint, say). The oracle alone then judges the compiled run; the eager one must deviate from it, or end with
    ``eager_error`` (a class name), and ``schedule`` states what it really runs. Such a program has a ``sound`` forward.

    ``stated`` is False where nobody says how many graphs and which FP8 products there must be (a user's own module):
    both are shown instead of judged, but there must be some. ``ordered_backward`` is False where a step's forward runs
    in several threads: the same products must run in backward, in whatever order. ``draws`` is True where a step's own
    computation may draw from torch's generators (dropout, a user's own module): what its first eager run moves is then
    not held against the library.
    """

    fp8_linears: tuple[str, ...] = ()
    graphs: int = 1
    steps: int = 1
    raises: Raises | None = None
    schedule: tuple[StepExpects, ...] = ()
    compiled_schedule: tuple[StepExpects, ...] = ()
    backward_graphs: int | None = None
    recompiles: int = 0
    graph_breaks: int = 0
    eager_frames: int = 0
    captured: bool = True
    eager_is_wrong: str = ""
    eager_error: str = ""
    stated: bool = True
    ordered_backward: bool = True
    draws: bool = False

    def step(self, index: int, *, compiled: bool = False) -> StepExpects:
        """What step ``index`` must run in FP8."""
        schedule = (self.compiled_schedule if compiled else ()) or self.schedule
        return schedule[index % len(schedule)] if schedule else StepExpects(self.fp8_linears)


def _nothing(*args: Any) -> None:
    """What a step does on the oracle, where there is no state to look at."""


@dataclass(frozen=True)
class Step:
    """One step as a program's ``drive`` sees it.

    ``forward`` is the program's own, eager or compiled; it may be called several times, or not at all.
    ``compiled``: whether the judged run is the compiled one. ``provider`` is None on the judge's oracle.
    ``unchanged(moment)`` compares all state with that at the start of the step and reports what differs;
    ``reset()`` resets the provider, and the oracle's memory of scales alike.
    """

    index: int
    forward: Callable[..., torch.Tensor]
    recipes: tuple[Any, ...]
    inputs: tuple[torch.Tensor, ...]
    compiled: bool = False
    provider: Provider | None = None
    unchanged: Callable[[str], None] = _nothing
    reset: Callable[[], None] = _nothing


@dataclass(frozen=True)
class Program:
    """A buildable, compilable program.

    ``forward(recipes, *inputs)`` is what gets compiled; it returns one tensor. ``recipes()`` makes equal-but-new recipe
    objects on every call: a provider that keys on identity then recompiles, which the harness sees. ``make_inputs``
    draws one batch (CPU generator; tensors on the context's device, ``requires_grad`` set where gradients are judged).
    Parameters of ``model`` are overwritten by the harness from the cell's seed, on the provider's side and the oracle's
    alike, so names and shapes must not depend on the provider.

    What happens around the compiled forward, the same on the provider and on the oracle, where a case needs it:

    - ``drive(step)`` makes the step's calls and returns its output; ``step.forward(step.recipes, *step.inputs)`` by
      default. A region around a compiled module, other modes, a reset, an exception that is caught: all go here.
    - ``around_backward(step, backward)`` runs ``backward()``, ``passes`` times, gradients adding up. The graph is kept
      for all passes but the last.
    - ``update(model)`` changes the weights after each step, as an optimizer does; the oracle follows the judged run's
      weights from step to step.
    - ``inputs_at(generator, index)`` instead of ``make_inputs`` where batches differ; ``exact_inputs`` keeps the
      harness from varying their magnitude and number of rows.
    - ``settings`` are compiler settings ("dynamo.NAME", "functorch.NAME", "inductor.NAME") in force while the program
      is compiled and run.
    - ``sound`` is ``forward`` written such that eager code computes it rightly, for expectations that say
      ``eager_is_wrong``: it stands beside the later compiled calls.
    - ``own_threads``: steps call the forward in threads that the program starts: the profiler looks at all of them.
    - ``probes(probing)`` states further facts, each an expected and a seen value; run last, on ``probe_levels``.
    """

    model: torch.nn.Module
    forward: Callable[..., torch.Tensor]
    recipes: Callable[[], tuple[Any, ...]]
    make_inputs: Callable[[torch.Generator], tuple[torch.Tensor, ...]]
    expects: Expects
    drive: Callable[[Step], torch.Tensor] | None = None
    around_backward: Callable[[Step, Callable[[], None]], None] | None = None
    passes: int = 1
    update: Callable[[torch.nn.Module], None] | None = None
    inputs_at: Callable[[torch.Generator, int], tuple[torch.Tensor, ...]] | None = None
    exact_inputs: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    sound: Callable[..., torch.Tensor] | None = None
    own_threads: bool = False
    probes: Callable[[Probing], None] | None = None
    probe_levels: Sequence[Evidence] = (Evidence.NATIVE, Evidence.EMULATED, Evidence.REHEARSED)

    def run(self, step: Step) -> torch.Tensor:
        """The step's output."""
        return step.forward(step.recipes, *step.inputs) if self.drive is None else self.drive(step)


def available(provider: Provider, axes: Axes, arch: str) -> str:
    """The default of :attr:`Case.unavailable`: every provider can run the case, everywhere."""
    del provider, axes, arch
    return ""


def nothing(provider: Provider, axes: Axes, arch: str) -> Mapping[str, Any]:
    """The default of :attr:`Case.asks`: the program is the same whatever the provider says."""
    del provider, axes, arch
    return {}


@dataclass(frozen=True)
class Case:
    """A registered case. ``answers`` are public reports (``repository#number``) that the case rests on.

    ``unavailable(provider, axes, arch)`` says why this provider or machine can't run the cell, which is then skipped
    with that reason; an empty string where it can (:func:`lacks` words it for a missing feature).
    ``asks(provider, axes, arch)`` is called once, where the cell is available: answers of the provider under test that
    the program depends on and no specification settles (its default recipe, whether its recipes can be changed). They
    must be plain values, never anything that computes, and reach both programs as ``ctx.told``, and the judge.
    """

    name: str
    build: Callable[[CaseContext], Program]
    catches: str
    answers: tuple[str, ...] = ()
    unavailable: Callable[[Provider, Axes, str], str] = available
    asks: Callable[[Provider, Axes, str], Mapping[str, Any]] = nothing


def features_of(provider: ProgramProvider) -> Mapping[str, Callable[..., Any]]:
    """What a provider offers beyond the protocol, by name, e.g. ``checkpoint``; the oracle offers the same."""
    offered: Mapping[str, Callable[..., Any]] = getattr(provider, "features", {})
    return offered


def lacks(provider: Provider, *names: str) -> str:
    """Why a provider without one of these features can't run a case; empty when it has them all."""
    missing = [name for name in names if name not in features_of(provider)]
    return f"{provider.name} has no {', no '.join(missing)}" if missing else ""
