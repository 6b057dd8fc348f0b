"""How Dynamo hides trouble: breaks, frames, graphs and captured calls, each of which is blind somewhere."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cases.canary.ground import CURRENT, Ground, Holder, Region, observed, raised, signals, with_own_code
from harness import torch_compat
from harness.observe.census import CensusObserver, reset_compiler
from harness.types import Spec

SETTINGS = 12
graph_break = torch_compat.graph_break_function()


def prints(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    print("canary")
    return x * 2


def branches(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x * 2
    return x - 1


def breaks_in_region(x: torch.Tensor) -> torch.Tensor:
    with Region():
        x = x + 1
        graph_break()
        return x * 2


def breaks_in_loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = x + 1
        graph_break()
    return x


def breaks_at_edges(x: torch.Tensor) -> torch.Tensor:
    with torch_compat.BreakingRegion():
        x = x + 1
    return x * 2


def _breaking(x: torch.Tensor) -> torch.Tensor:
    graph_break()
    return x * 2


def breaks_in_callee(x: torch.Tensor) -> torch.Tensor:
    x = x * 3
    return _breaking(x) - 1


def row(fn: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Ground], str]:
    """A row of the first table: every signal for one call of ``fn``, and what ``explain`` counts."""

    def run(ground: Ground) -> str:
        x = torch.ones(4, device=ground.device)
        with contextlib.redirect_stdout(io.StringIO()):
            seen = signals(observed(fn, [(x,)]))
            return f"{seen}, explain {torch_compat.explained_breaks(fn, x)}"

    return run


def recompile_limit(ground: Ground) -> str:
    """Twelve settings of a plain function."""
    return signals(_settings(ground, fullgraph=False))


def _settings(ground: Ground, *, fullgraph: bool) -> Any:
    def scaled(x: torch.Tensor, setting: str) -> torch.Tensor:
        return x * len(setting)

    calls = [(torch.ones(4, device=ground.device), "s" * (index + 1)) for index in range(SETTINGS)]
    return observed(scaled, calls, fullgraph=fullgraph)


def recompile_limit_under_fullgraph(ground: Ground) -> str:
    return raised(lambda: _settings(ground, fullgraph=True))


# ---- the second table: programs with FP8 layers --------------------------------------------------------------------


def _fp8_signals(ground: Ground, fn: Callable[..., Any], around: Callable[[], Any], *, fullgraph: bool = False) -> str:
    x = ground.batch()
    census = observed(fn, [(x,)], provider=ground.provider, fullgraph=fullgraph, around=around)
    (call,) = census.calls
    return f"{signals(census)}, captured {call.captured} of {call.executed}"


def break_beside_layers(ground: Ground) -> str:
    autocast, recipe = with_own_code(ground.provider.autocast), ground.provider.recipe(CURRENT)

    def program(x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipe):
            x = ground.layers[0](x)
            graph_break()
            return ground.layers[1](x)  # type: ignore[no-any-return]

    return _fp8_signals(ground, program, contextlib.nullcontext)


def _whole(ground: Ground) -> Callable[..., Any]:
    autocast, recipe = ground.provider.autocast, ground.provider.recipe(CURRENT)

    def program(x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipe):
            return ground.fp8(x)

    return program


class _PassThrough(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def dispatch_mode(ground: Ground) -> str:
    return _fp8_signals(ground, _whole(ground), _PassThrough)


@contextlib.contextmanager
def stance(name: str) -> Iterator[None]:
    """A stance for a while."""
    torch.compiler.set_stance(name)
    try:
        yield
    finally:
        torch.compiler.set_stance("default")


def force_eager(ground: Ground) -> str:
    return _fp8_signals(ground, _whole(ground), lambda: stance("force_eager"), fullgraph=True)


def settings_of_a_layer(ground: Ground) -> str:
    """Twelve recipes, the region around the compiled layer."""
    specs = [Spec(CURRENT.name, (("amax_epsilon", index / 64),)) for index in range(SETTINGS)]
    recipes = [ground.provider.recipe(spec) for spec in specs]
    regions = iter(recipes)

    def outside(compiled: Callable[..., Any]) -> Callable[..., Any]:
        def call(x: torch.Tensor) -> Any:
            with ground.provider.autocast(enabled=True, recipe=next(regions)):
                return compiled(x)

        return call

    census = _settings_through(ground, outside)
    captured = sum(call.captured for call in census.calls)
    return f"{signals(census)}, captured {captured} of {sum(call.executed for call in census.calls)}"


def _settings_through(ground: Ground, outside: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Any:
    """The census of twelve calls of the compiled first layer through ``outside``."""
    reset_compiler()
    with CensusObserver(ground.provider.fp8_ops) as observer, ground.provider.tap() as records:
        compiled = torch.compile(ground.layers[0], backend=observer.wrap_backend("eager"))
        call = outside(compiled)
        for _ in range(SETTINGS):
            observer.call(call, ground.batch(), records=records)
    return observer.census()


# ---- counters and metrics ------------------------------------------------------------------------------------------


def counters_after_reset(ground: Ground) -> str:
    with contextlib.redirect_stdout(io.StringIO()):
        observed(prints, [(torch.ones(4, device=ground.device),)])
    before = torch_compat.dynamo_counters()["frames"]["total"]
    torch.compiler.reset()
    return "kept" if torch_compat.dynamo_counters().get("frames", {}).get("total") == before else "cleared"


def metrics_after_reset(ground: Ground) -> str:
    observed(branches, [(torch.ones(4, device=ground.device),)])
    torch.compiler.reset()
    return torch_compat.compilation_metrics_kept()


def frames_under_fullgraph(ground: Ground) -> str:
    census = observed(_plain, [(torch.ones(4, device=ground.device),)], fullgraph=True)
    return f"frames {census.frames_total}, graphs {census.graphs}"


def _plain(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def unique_graphs(ground: Ground) -> str:
    census = observed(_plain, [(torch.ones(size, device=ground.device),) for size in (4, 5)], dynamic=False)
    return f"given to the backend {census.graphs}, counted {torch_compat.dynamo_counters()['stats']['unique_graphs']}"


def fail_on_recompile(ground: Ground) -> str:
    reset_compiler()
    compiled = torch.compile(_plain, backend="eager", dynamic=False)
    compiled(torch.ones(4, device=ground.device))
    with stance("fail_on_recompile"):
        warm = raised(lambda: compiled(torch.ones(4, device=ground.device)))
        cold = raised(lambda: compiled(torch.ones(5, device=ground.device)))
    return f"warm: {warm}; cold: {cold}"


def class_attribute(ground: Ground) -> str:
    def writes(x: torch.Tensor) -> torch.Tensor:
        Holder.written = Holder.written + 1 if Holder.written < 0 else 0
        return x + 1

    return signals(observed(writes, [(torch.ones(4, device=ground.device),)] * 2))


def defaults(ground: Ground) -> str:
    del ground
    names = ("nested_graph_breaks", "recompile_limit", "suppress_errors")
    return ", ".join(f"{name} {torch_compat.dynamo_default(name)}" for name in names)
