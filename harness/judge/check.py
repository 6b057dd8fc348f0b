"""What a check is, and what it is given.

A check is a named pure function from one cell's observations to findings. It says itself when it applies; a check that
does not apply says nothing, and the names of those that did apply stand in the result, so that a report can tell
"held" from "not looked at".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.observe.types import Observations
from harness.program import Expects
from harness.types import Axes, Budgets, Cell, Evidence, Finding, Raises

EXECUTED = (Evidence.NATIVE, Evidence.EMULATED, Evidence.REHEARSED)


@dataclass(frozen=True)
class Judging:
    """One cell's observations beside everything that is expected of it.

    Precedence of expectations: schema defaults < case < matrix.
    """

    cell: Cell
    obs: Observations

    @property
    def axes(self) -> Axes:
        return self.cell.axes

    @property
    def expects(self) -> Expects:
        return self.obs.expects or Expects(fp8_linears=())

    @property
    def budgets(self) -> Budgets:
        return self.cell.expect.budgets

    @property
    def raises(self) -> Raises | None:
        return self.cell.expect.raises or self.expects.raises

    @property
    def graphs(self) -> int:
        """Forward graphs that one setting may take: the matrix's word, else the case's."""
        return self.expects.graphs if self.budgets.graphs is None else self.budgets.graphs

    @property
    def graphs_stated(self) -> bool:
        """Whether the matrix or the case says how many graphs there must be."""
        return self.expects.stated or self.budgets.graphs is not None

    @property
    def executed(self) -> bool:
        return self.obs.evidence in EXECUTED

    @property
    def compiled(self) -> bool:
        """True when a compiled run is there to be judged (executed or traced) and none was expected to be refused."""
        return self.obs.census is not None and self.raises is None and not self.obs.errors

    def allowed(self, event: str) -> int | None:
        """How many graph_breaks, recompiles or eager_frames there may be: those of the case's design, and the matrix's
        budget on top; None where the matrix doesn't judge them."""
        budget: int | None = getattr(self.budgets, event)
        by_design: int = getattr(self.expects, event)
        return None if budget is None else budget + by_design

    def measured(self, event: str) -> int | None:
        """How many graphs, graph_breaks, recompiles or eager_frames a baseline measured; None where none did."""
        baseline = self.cell.expect.baseline
        measured: int | None = getattr(baseline, event) if baseline else None
        return measured

    def limit(self, event: str) -> int | None:
        """What is allowed, and no more than a baseline measured; None where nothing is judged."""
        limits = [count for count in (self.allowed(event), self.measured(event)) if count is not None]
        return min(limits, default=None)

    def at_most(self, event: str) -> str:
        """The limit in words, with the baseline where that alone is what is exceeded."""
        allowed, measured = self.allowed(event), self.measured(event)
        if measured is None or (allowed is not None and allowed <= measured):
            return f"at most {allowed}"
        return f"at most {measured} ({self.baseline_origin(event)})"

    def baseline_origin(self, event: str) -> str:
        """``baseline FILE``, as the plan has it."""
        return self.cell.origin.get(f"limits.{event}", "a baseline")

    def errors_in(self, *phases: str) -> list[str]:
        return [error.message for error in self.obs.errors if error.phase in phases]


@dataclass(frozen=True)
class Enabled:
    """Which checks are run, by name: ``only`` these (None: all there are), and of them all ``but`` those.

    Of a check that isn't enabled no code runs, so that one which needs another's to have run before it shows as such.
    """

    only: frozenset[str] | None = None
    but: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return (self.only is None or name in self.only) and name not in self.but

    @property
    def names(self) -> frozenset[str]:
        """Every name that is spoken of."""
        return (self.only or frozenset()) | self.but


EVERY = Enabled()


@dataclass(frozen=True)
class Check:
    """A registered check. ``sees`` says in one line what it catches that others are blind to."""

    name: str
    sees: str
    applies: Callable[[Judging], bool]
    run: Callable[[Judging], Sequence[Finding]]


def one(check: str, expected: object, got: object, where: str = "", site: str = "") -> list[Finding]:
    """A single finding as a list, the usual answer of a check."""
    return [Finding(check=check, expected=str(expected), got=str(got), where=where, site=site)]
