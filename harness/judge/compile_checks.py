"""Did the program really compile? Each signal is blind somewhere (docs/census.md), so each is a check of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.judge.check import Check, Judging, one
from harness.judge.compare import shorten
from harness.observe.types import Census
from harness.types import MINIMUM_TRACED, Evidence, Finding


def _census(j: Judging) -> Census:
    return j.obs.census or Census()


def _first_site(census: Census) -> str:
    return census.breaks[0].site if census.breaks else ""


def _why(census: Census) -> str:
    """The best-known reason of a fallback, to stand beside a bare count."""
    if census.breaks:
        return f" ({census.breaks[0].reason})"
    if census.unimplemented:
        return f" ({census.unimplemented[0]})"
    return ""


def eager_frames(j: Judging) -> Sequence[Finding]:
    """Frames that Dynamo abandoned: ``frames.total - frames.ok``. Sees the break inside a region, which the break
    counter does not (pytorch/pytorch#150477)."""
    census, allowed = _census(j), j.limit("eager_frames")
    if allowed is None or census.eager_frames <= allowed:
        return ()
    got = f"{census.eager_frames} of {census.frames_total} frames ran eagerly{_why(census)}"
    return one("compile.eager_frames", j.at_most("eager_frames"), got, site=_first_site(census))


def graphs(j: Judging) -> Sequence[Finding]:
    """Unique forward graphs. Sees a break whose inner frames still compile, and a silent eager run (0 graphs)."""
    census, measured = _census(j), j.measured("graphs")
    got = f"{census.graphs}{_why(census)}"
    if not j.graphs_stated and census.graphs == 0:
        return one("compile.graphs", "at least one forward graph", got, site=_first_site(census))
    if j.graphs_stated and census.graphs != j.graphs:
        return one("compile.graphs", f"{j.graphs} forward graph(s)", got, site=_first_site(census))
    if measured is not None and census.graphs > measured:
        expected = f"at most {measured} ({j.baseline_origin('graphs')})"
        return one("compile.graphs", expected, got, site=_first_site(census))
    return ()


def captured(j: Judging) -> Sequence[Finding]:
    """FP8 calls inside graphs that ran = FP8 calls executed, on every compiled call, warm ones too. Sees the
    ``force_eager`` stance and an active dispatch mode, to which every counter is blind."""
    census = _census(j)
    if not census.calls:
        return one("compile.captured", "at least one observed compiled call", "none")
    for index, call in enumerate(census.calls):
        if not j.expects.captured and call.captured:
            got = f"{call.captured} inside compiled graphs"
            return one("compile.captured", "FP8 calls in Python, as is documented", got, f"call {index + 1}")
        if j.expects.captured and call.captured != call.executed:
            got = f"{call.captured} of {call.executed} FP8 linear calls were inside compiled graphs{_why(census)}"
            return one("compile.captured", "all executed FP8 calls captured", got, f"call {index + 1}")
    if not j.expects.stated and not any(call.executed for call in census.calls):
        unused = (
            f" (AOT dropped {census.dropped_calls}: does the result depend on them?)" if census.dropped_calls else ""
        )
        got = f"none in {len(census.calls)} compiled calls{unused}"
        return one("compile.captured", "at least one FP8 linear call", got)
    return ()


def captured_traced(j: Judging) -> Sequence[Finding]:
    """Nothing executes in a traced cell: the FP8 calls in the graphs must be those that the case states for the steps
    that were traced."""
    steps = max(MINIMUM_TRACED, j.expects.steps)
    if not j.expects.stated:
        none = not any(call.captured for call in _census(j).calls)
        return one("compile.captured", "at least one FP8 linear call in the graphs", "none") if none else ()
    stated = range(steps if j.expects.captured else 0)
    expected = sum(len(j.expects.step(index, compiled=True).fprop) for index in stated)
    seen = sum(call.captured for call in _census(j).calls)
    wanted = f"{expected} FP8 linear calls in the graphs"
    return () if seen == expected else one("compile.captured", wanted, seen, f"{steps} traced steps")


def breaks(j: Judging) -> Sequence[Finding]:
    """Graph-break sites, from the structured trace and from the counter; either alone is blind."""
    census, allowed = _census(j), j.limit("graph_breaks")
    count = max(len(census.breaks), census.counter_breaks)
    if allowed is None or count <= allowed:
        return ()
    reasons = "; ".join(f"{item.reason} at {item.site}" for item in census.breaks[:3])
    return one("compile.breaks", j.at_most("graph_breaks"), f"{count}: {reasons}", site=_first_site(census))


def recompiles(j: Judging) -> Sequence[Finding]:
    """Recompilations of a frame, each with its guard's reason."""
    census, allowed = _census(j), j.limit("recompiles")
    if allowed is None or len(census.recompiles) <= allowed:
        return ()
    return one("compile.recompiles", j.at_most("recompiles"), f"{len(census.recompiles)}: {census.recompiles[0]}")


def recompile_limit(j: Judging) -> Sequence[Finding]:
    """The recompile limit: beyond it calls run eagerly without a break event (pytorch/pytorch#128319)."""
    hits = _census(j).recompile_limit_hits
    return one("compile.recompile_limit", 0, f"hit {hits} time(s)") if hits else ()


def unimplemented(j: Judging) -> Sequence[Finding]:
    """Constructs that Dynamo reported as unsupported, beyond the breaks and eager frames that are allowed: the only
    trace of some fallbacks."""
    census, breaks, frames = _census(j), j.allowed("graph_breaks"), j.allowed("eager_frames")
    if breaks is None or frames is None or len(census.unimplemented) <= breaks + frames:
        return ()
    return one("compile.unimplemented", f"at most {breaks + frames}", "; ".join(census.unimplemented[:3]))


def backward_graph(j: Judging) -> Sequence[Finding]:
    """A backward graph for each forward graph on AOT backends: forward compiled says nothing of backward."""
    seen, stated = _census(j).backward_graphs, j.expects.backward_graphs
    if not j.graphs_stated and stated is None:
        lost = seen == 0 and any(step.grads for step in (j.obs.compiled.steps if j.obs.compiled else ()))
        return one("compile.backward_graph", "at least one, as there are gradients", "none") if lost else ()
    expected = j.graphs if stated is None else stated
    return () if seen == expected else one("compile.backward_graph", expected, f"{seen} backward graph(s)")


def steady(j: Judging) -> Sequence[Finding]:
    """Ten more calls with new tensors and equal-but-new recipe objects compile nothing."""
    census = _census(j)
    if census.steady_compiles == 0:
        return ()
    reason = f" ({census.recompiles[-1]})" if census.recompiles else ""
    return one("compile.steady", "no compilation after the warm-up", f"{census.steady_compiles}{reason}")


def promises(j: Judging) -> Sequence[Finding]:
    """Each tensor that an operator of the library returned is what its fake implementation says: shape, dtype, strides,
    kind of device. Compiled code is laid out by the latter; eager code and aot_eager take what comes."""
    broken = [item for item in j.obs.operators if item.promised != item.returned]
    found = [finding for item in broken for finding in one("compile.fake", item.promised, item.returned, item.name)]
    return shorten(found)


def _compiled(j: Judging) -> bool:
    return j.compiled


def _when(condition: Callable[[Judging], bool]) -> Callable[[Judging], bool]:
    return lambda j: j.compiled and condition(j)


CHECKS = (
    Check(
        "compile.fake",
        "an operator that returns other strides than its fake implementation says",
        _when(lambda j: j.executed and bool(j.obs.operators)),
        promises,
    ),
    Check("compile.eager_frames", "a frame that fell back to Python without a counted break", _compiled, eager_frames),
    Check("compile.graphs", "a program split into more graphs, or into none", _compiled, graphs),
    Check("compile.captured", "FP8 calls that ran outside any graph", _when(lambda j: j.executed), captured),
    Check(
        "compile.captured",
        "FP8 calls missing from a traced graph",
        _when(lambda j: j.obs.evidence is Evidence.TRACED),
        captured_traced,
    ),
    Check("compile.breaks", "graph-break sites", _compiled, breaks),
    Check("compile.recompiles", "guards that fail on equal settings", _compiled, recompiles),
    Check("compile.recompile_limit", "calls beyond the recompile limit, which run eagerly", _compiled, recompile_limit),
    Check("compile.unimplemented", "constructs Dynamo gave up on without a break", _compiled, unimplemented),
    Check(
        "compile.backward_graph",
        "a backward pass that was not compiled",
        _when(lambda j: j.axes.backend != "eager"),
        backward_graph,
    ),
    Check("compile.steady", "compilations after the warm-up", _when(lambda j: j.executed), steady),
)
