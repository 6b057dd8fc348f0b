"""Each signal of the compile census, with programs in which it fires and others in which it is blind.

The two tables are those of docs/census.md, the same on torch 2.11, 2.13 and 2.14; each row has a twin in which nothing
fires.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils._python_dispatch import TorchDispatchMode

from harness.observe.census import CensusObserver, compile_switches, reset_compiler
from harness.observe.types import CallSeen, Census
from tests.support import fake_provider
from tests.support.broken_programs import (
    branches,
    breaks_in_callee,
    breaks_in_loop,
    breaks_in_region,
    breaks_on_enter_and_exit,
    prints,
    whole,
)
from tests.support.fake_provider import FP8_OP, STATE, FakeProvider, Recipe, autocast, identity_layers, ones

NO_OPS: frozenset[str] = frozenset()
FP8_OPS = frozenset({FP8_OP})


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    reset_compiler()
    FakeProvider().reset()
    yield
    reset_compiler()


def observe(
    fn: Callable[..., Any],
    *args: Any,
    backend: str = "eager",
    fullgraph: bool = False,
    around: Callable[[], Any] = contextlib.nullcontext,
    calls: int = 1,
) -> Census:
    """Census of ``calls`` compiled calls of ``fn(*args)`` under the fake provider's tap."""
    with CensusObserver(FP8_OPS) as observer, FakeProvider().tap() as records:
        compiled = torch.compile(fn, backend=observer.wrap_backend(backend), fullgraph=fullgraph)
        with around():
            for _ in range(calls):
                observer.call(compiled, *args, records=records)
    return observer.census()


# ---- first table: plain functions -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Signals:
    """What each signal says; the field order is that of the table in docs/census.md."""

    counter: int
    sites: int
    events: int
    eager_frames: int
    graphs: int
    unimplemented: bool


def signals(census: Census) -> Signals:
    return Signals(
        counter=census.counter_breaks,
        sites=len(census.breaks),
        events=sum(item.events for item in census.breaks),
        eager_frames=census.eager_frames,
        graphs=census.graphs,
        unimplemented=bool(census.unimplemented),
    )


FIRST_TABLE = {
    prints: Signals(counter=1, sites=1, events=1, eager_frames=0, graphs=2, unimplemented=False),
    branches: Signals(counter=0, sites=1, events=1, eager_frames=0, graphs=2, unimplemented=True),
    breaks_in_region: Signals(counter=0, sites=1, events=1, eager_frames=1, graphs=0, unimplemented=True),
    breaks_in_loop: Signals(counter=0, sites=1, events=1, eager_frames=1, graphs=0, unimplemented=True),
    breaks_on_enter_and_exit: Signals(counter=2, sites=2, events=3, eager_frames=1, graphs=0, unimplemented=True),
    breaks_in_callee: Signals(counter=2, sites=1, events=2, eager_frames=0, graphs=3, unimplemented=False),
}


@pytest.mark.parametrize("program", FIRST_TABLE, ids=lambda fn: fn.__name__)
def test_first_table(program: Callable[..., torch.Tensor]) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        assert signals(observe(program, torch.ones(4))) == FIRST_TABLE[program]


@pytest.mark.parametrize("program", FIRST_TABLE, ids=lambda fn: fn.__name__)
def test_every_row_is_seen_by_some_signal_and_names_the_line(program: Callable[..., torch.Tensor]) -> None:
    """Holds on every torch version, whatever the counts."""
    with contextlib.redirect_stdout(io.StringIO()):
        census = observe(program, torch.ones(4))
    assert census.breaks
    for item in census.breaks:
        assert item.site.startswith("tests/support/broken_programs.py:")
        assert item.reason
        assert "\n" not in item.reason


@pytest.mark.parametrize("fullgraph", [True, False])
def test_good_twin_is_silent(fullgraph: bool) -> None:
    census = observe(whole, torch.ones(4), fullgraph=fullgraph)
    assert signals(census) == Signals(0, 0, 0, 0, graphs=1, unimplemented=False)
    assert census.frames_total == (0 if fullgraph else 1)  # Dynamo counts no frames under fullgraph


def test_generator_region_leaves_two_eager_frames() -> None:
    """The generator behind a contextlib manager is a frame of its own that Dynamo gives up on."""

    @contextlib.contextmanager
    def region() -> Iterator[None]:
        yield

    def program(x: torch.Tensor) -> torch.Tensor:
        with region():
            torch._dynamo.graph_break()
        return x * 2

    assert signals(observe(program, torch.ones(4))).eager_frames == 2


def test_break_reason_of_an_abandoned_frame_has_both_causes() -> None:
    (item,) = observe(breaks_in_region, torch.ones(4)).breaks
    first, second = item.reason.split("; then ")
    assert first.startswith("Call to `torch._dynamo.graph_break()`")
    assert "ContextWrapping" in second


def test_the_same_break_in_two_compilations_is_one_site() -> None:
    with CensusObserver(NO_OPS) as observer:
        compiled = torch.compile(breaks_in_region, backend=observer.wrap_backend("eager"), dynamic=False)
        compiled(torch.ones(4))
        reset_compiler()
        compiled(torch.ones(4))
    (item,) = observer.census().breaks
    assert item.events == 2


# ---- recompilations and the recompile limit --------------------------------------------------------------------------

_SETTING = [0]


def uses_setting(x: torch.Tensor) -> torch.Tensor:
    return x * _SETTING[0]


def _settings(count: int, backend: str = "eager", fullgraph: bool = False) -> Census:
    with CensusObserver(NO_OPS) as observer:
        wrapped = observer.wrap_backend(backend)
        compiled = torch.compile(uses_setting, backend=wrapped, dynamic=False, fullgraph=fullgraph)
        for _SETTING[0] in range(count):
            with contextlib.suppress(torch._dynamo.exc.FailOnRecompileLimitHit):
                observer.call(compiled, torch.ones(4, requires_grad=True))
    return observer.census()


def test_recompile_limit_is_no_break_but_an_eager_frame() -> None:
    census = _settings(12)
    assert (census.counter_breaks, census.breaks) == (0, ())
    assert census.graphs == 8
    assert census.eager_frames == 1  # not 4: Dynamo stops looking at the frame
    assert census.recompile_limit_hits == 1
    assert len(census.recompiles) == 7
    assert "== 0" in census.recompiles[0]


def test_recompile_limit_under_fullgraph_raises_and_is_counted() -> None:
    census = _settings(12, fullgraph=True)
    assert census.frames_total == 0  # blind
    assert census.recompile_limit_hits == 4
    assert len(census.calls) == 8


def test_one_setting_recompiles_nothing() -> None:
    census = _settings(1)
    assert (census.graphs, census.recompiles, census.recompile_limit_hits) == (1, (), 0)


# ---- second table: programs of the fake provider ---------------------------------------------------------------------


def _region_program(broken: bool, width: int = 16) -> Callable[..., torch.Tensor]:
    layers = identity_layers(width)

    def program(recipe: Recipe, x: torch.Tensor) -> torch.Tensor:
        with autocast(recipe=recipe):
            x = layers[0](x)
            if broken:
                torch._dynamo.graph_break()
            return layers[1](x)  # type: ignore[no-any-return]

    return program


class PassThrough(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def stance(name: str) -> Iterator[None]:
    torch.compiler.set_stance(name)
    try:
        yield
    finally:
        torch.compiler.set_stance("default")


@pytest.mark.parametrize(("width", "graphs"), [(32, 2), (16, 1)])
def test_break_in_the_region_whose_layers_still_compile(width: int, graphs: int) -> None:
    """Numerics and captured calls are right and the break counter says none: the eager frames see it.

    So does the number of graphs where the layers differ in shape; equal layers share one compilation of their forward,
    and the one graph that the program should have is there by accident.
    """
    census = observe(_region_program(broken=True, width=width), Recipe("r"), ones())
    assert census.counter_breaks == 0
    assert census.calls == (CallSeen(captured=2, executed=2),)
    assert census.eager_frames == 2
    assert census.graphs == graphs
    assert len(census.breaks) == 1


def test_dispatch_mode_when_cold_is_seen_by_captured_calls_alone() -> None:
    census = observe(_region_program(broken=False), Recipe("r"), ones(), around=PassThrough)
    assert census.calls == (CallSeen(captured=0, executed=2),)
    assert (census.counter_breaks, census.breaks, census.eager_frames, census.unimplemented) == (0, (), 0, ())
    assert census.graphs == 0


@pytest.mark.parametrize("fullgraph", [True, False])
def test_force_eager_stance_is_seen_by_captured_calls_alone(fullgraph: bool) -> None:
    program, recipe = _region_program(broken=False), Recipe("r")
    census = observe(program, recipe, ones(), around=lambda: stance("force_eager"), fullgraph=fullgraph)
    assert census.calls == (CallSeen(captured=0, executed=2),)
    assert (census.counter_breaks, census.breaks, census.eager_frames, census.unimplemented) == (0, (), 0, ())


def test_twelve_settings_on_one_module() -> None:
    layer = identity_layers()[0]
    with CensusObserver(FP8_OPS) as observer, FakeProvider().tap() as records:
        compiled = torch.compile(layer, backend=observer.wrap_backend("eager"))
        for i in range(12):
            with autocast(recipe=Recipe(f"r{i}")):
                observer.call(compiled, ones(), records=records)
    census = observer.census()
    assert census.graphs == 8
    assert census.eager_frames == 1
    assert census.calls == (CallSeen(1, 1),) * 8 + (CallSeen(0, 1),) * 4


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_good_twin_of_the_second_table(backend: str, fullgraph: bool) -> None:
    census = observe(_region_program(broken=False), Recipe("r"), ones(), backend=backend, fullgraph=fullgraph, calls=3)
    assert census.calls == (CallSeen(captured=2, executed=2),) * 3
    assert signals(census) == Signals(0, 0, 0, 0, graphs=1, unimplemented=False)
    assert census.recompiles == ()


def test_graphs_agree_with_torchs_own_counter() -> None:
    counter = CompileCounterWithBackend("eager")
    torch.compile(prints, backend=counter)(torch.ones(4))
    reset_compiler()
    assert observe(prints, torch.ones(4)).graphs == counter.frame_count


# ---- backward -------------------------------------------------------------------------------------------------------


def test_backward_graph_is_counted_on_aot_backends_only() -> None:
    program = _region_program(broken=False)
    assert observe(program, Recipe("r"), ones(), backend="aot_eager").backward_graphs == 1
    reset_compiler()
    assert observe(program, Recipe("r"), ones(), backend="eager").backward_graphs == 0


def test_forward_that_detaches_has_no_backward_graph() -> None:
    layers = identity_layers()

    def program(recipe: Recipe, x: torch.Tensor) -> torch.Tensor:
        with autocast(recipe=recipe), torch.no_grad():
            return layers[0](x)  # type: ignore[no-any-return]

    census = observe(program, Recipe("r"), ones(), backend="aot_eager", fullgraph=True)
    assert census.graphs == 1
    assert census.backward_graphs == 0


# ---- steady calls ---------------------------------------------------------------------------------------------------


def _steady(program: Callable[..., torch.Tensor], *, backend: str = "aot_eager", warm_backward: bool = True) -> Census:
    """Warm-up call, then ten steady ones, each forward and backward with new tensors and recipes."""
    with CensusObserver(FP8_OPS) as observer, FakeProvider().tap() as records:
        compiled = torch.compile(program, backend=observer.wrap_backend(backend))
        warm = observer.call(compiled, Recipe("r"), ones(), records=records)
        if warm_backward:
            warm.sum().backward()
        with observer.steady():
            for _ in range(10):
                observer.call(compiled, Recipe("r"), ones(), records=records).sum().backward()
    return observer.census()


def test_monotonic_counter_recompiles_each_call() -> None:
    """A counter in Python state: numerics are right, the first call is whole (pytorch/pytorch#128319)."""
    inner = _region_program(broken=False)

    def program(recipe: Recipe, x: torch.Tensor) -> torch.Tensor:
        STATE.counter += 1
        return inner(recipe, x)

    census = _steady(program, backend="eager")
    assert census.calls[0] == CallSeen(2, 2)
    assert census.steady_compiles > 1
    assert census.recompiles
    assert any("counter" in reason for reason in census.recompiles)


def test_counter_that_returns_to_its_value_compiles_nothing_more() -> None:
    inner = _region_program(broken=False)

    def program(recipe: Recipe, x: torch.Tensor) -> torch.Tensor:
        STATE.counter += 1
        y = inner(recipe, x)
        STATE.counter -= 1
        return y

    census = _steady(program, backend="eager")
    assert (census.steady_compiles, census.recompiles) == (0, ())


def test_new_equal_recipes_compile_nothing_more() -> None:
    census = _steady(_region_program(broken=False))
    assert (census.steady_compiles, census.recompiles, census.graphs) == (0, (), 1)
    assert len(census.calls) == 11


def test_recipe_keyed_on_identity_compiles_in_steady_calls() -> None:
    inner = _region_program(broken=False)
    last: list[Recipe | None] = [None]

    def program(recipe: Recipe, x: torch.Tensor) -> torch.Tensor:
        if recipe is not last[0]:
            last[0] = recipe
        return inner(recipe, x)

    assert _steady(program, backend="eager").steady_compiles > 0


def test_backward_compiled_late_is_a_steady_compile() -> None:
    """No frame is compiled: the frame count is blind."""
    census = _steady(_region_program(broken=False), warm_backward=False)
    assert census.frames_total == 1
    assert census.steady_compiles == 1


def test_new_shape_in_a_steady_call_counts() -> None:
    program = _region_program(broken=False)
    with CensusObserver(FP8_OPS) as observer:
        compiled = torch.compile(program, backend=observer.wrap_backend("eager"), fullgraph=True)
        compiled(Recipe("r"), ones())
        with observer.steady():
            compiled(Recipe("r"), torch.ones(32, 16, dtype=torch.bfloat16))
    assert observer.census().steady_compiles == 1


def test_a_graph_without_calls_is_empty() -> None:
    census = observe(lambda x: (x, 1), torch.ones(2))
    assert census.graphs == 0


# ---- the observer itself --------------------------------------------------------------------------------------------


def test_counts_start_at_entry_and_end_at_exit() -> None:
    torch.compile(breaks_in_loop, backend="eager")(torch.ones(4))
    census = observe(whole, torch.ones(4))
    assert signals(census) == Signals(0, 0, 0, 0, graphs=1, unimplemented=False)


def test_a_raising_call_is_no_call_and_passes_through() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("product")

    with CensusObserver(NO_OPS) as observer:
        compiled = torch.compile(program, backend=observer.wrap_backend("eager"))
        with pytest.raises(ValueError, match="product"):
            observer.call(compiled, torch.ones(2))
    assert observer.census().calls == ()


def test_backend_failures_surface_as_without_the_observer() -> None:
    with CensusObserver(NO_OPS) as observer, pytest.raises(torch._dynamo.exc.InvalidBackend):
        observer.wrap_backend("no_such_backend")


def test_records_the_settings_that_shift_counts() -> None:
    with torch._dynamo.config.patch(recompile_limit=3):
        config = observe(whole, torch.ones(4)).config
    assert config["dynamo.recompile_limit"] == 3
    assert config["dynamo.suppress_errors"] is False
    assert "inductor.emulate_precision_casts" in config


def test_observing_needs_no_dispatch_mode() -> None:
    seen: list[int] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    with CensusObserver(NO_OPS) as observer:
        seen.append(len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()))
        observer.call(torch.compile(program, backend=observer.wrap_backend("eager"), fullgraph=True), torch.ones(2))
    assert seen == [0]


def test_reset_compiler_clears_counts_that_dynamo_keeps() -> None:
    torch.compile(breaks_in_loop, backend="eager")(torch.ones(4))
    assert torch._dynamo.utils.counters["frames"]
    assert torch._dynamo.utils.get_compilation_metrics()
    reset_compiler()
    assert not torch._dynamo.utils.counters["frames"]
    assert not torch._dynamo.utils.get_compilation_metrics()


# ---- switches that turn compilation off -----------------------------------------------------------------------------


def test_no_switch_is_on_in_a_normal_process() -> None:
    assert compile_switches() == []


@pytest.mark.parametrize("name", ["TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"])
def test_environment_switches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert compile_switches() == [f"{name}=1"]
    monkeypatch.setenv(name, "0")
    assert compile_switches() == []


@pytest.mark.parametrize("name", ["disable", "suppress_errors"])
def test_config_switches(name: str) -> None:
    with torch._dynamo.config.patch({name: True}):
        (reason,) = compile_switches()
    assert f"torch._dynamo.config.{name}=True" in reason


@pytest.mark.parametrize("name", ["force_eager", "eager_on_recompile", "eager_then_compile"])
def test_stances(name: str) -> None:
    with stance(name):
        (reason,) = compile_switches()
    assert name in reason


def test_a_stance_that_raises_is_no_switch() -> None:
    with stance("fail_on_recompile"):
        assert compile_switches() == []


def test_dispatch_mode_is_a_switch_and_fake_tensors_are_not() -> None:
    with PassThrough():
        assert compile_switches() == ["the dispatch mode PassThrough is active"]
    with torch._subclasses.fake_tensor.FakeTensorMode():
        assert compile_switches() == []


def test_fake_provider_passes_opcheck() -> None:
    x, w = ones(), torch.eye(16, dtype=torch.bfloat16, requires_grad=True)
    torch.library.opcheck(fake_provider._linear, (x, w, "r"))
