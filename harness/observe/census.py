"""The compile census: what Dynamo and AOT did while a compiled program ran, from several signals at once.

Every signal is blind somewhere (docs/census.md), so all are collected. Nothing here activates a TorchDispatchMode while
compiled code runs (it would itself keep frames from being compiled) and nothing compiles a second time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch

from harness import torch_compat
from harness.observe.captured import count_fp8_calls, count_left_by_aot
from harness.observe.trace_log import TraceLog, unsupported_reason
from harness.observe.types import CallSeen, Census
from harness.providers.protocol import TapRecord

# Settings that shift counts from one torch version, or one user's environment, to the next: recorded with each census.
RECORDED_SETTINGS = (
    "dynamo.accumulated_recompile_limit",
    "dynamo.allow_unspec_int_on_nn_module",
    "dynamo.assume_static_by_default",
    "dynamo.automatic_dynamic_shapes",
    "dynamo.cache_size_limit",
    "dynamo.capture_dynamic_output_shape_ops",
    "dynamo.capture_scalar_outputs",
    "dynamo.compiled_autograd",
    "dynamo.error_on_recompile",
    "dynamo.fail_on_recompile_limit_hit",
    "dynamo.inline_inbuilt_nn_modules",
    "dynamo.nested_graph_breaks",
    "dynamo.recompile_limit",
    "dynamo.skip_fwd_side_effects_in_bwd_under_checkpoint",
    "dynamo.specialize_float",
    "dynamo.specialize_int",
    "dynamo.suppress_errors",
    "functorch.enable_autograd_cache",
    "inductor.emulate_precision_casts",
    "inductor.fallback_random",
    "inductor.fx_graph_cache",
)
_LIMIT = "Dynamo recompile limit exceeded"
_OFF_VARIABLES = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
_OFF_SETTINGS = {
    "dynamo.disable": "nothing is traced",
    "dynamo.suppress_errors": "failures of the compiler become eager runs",
    "dynamo.debug_backend_override": "another backend than the cell's runs",
}
# fail_on_recompile raises and therefore can't pass for success; every other stance may run eagerly without a word.
_LOUD_STANCES = ("default", "fail_on_recompile")


def reset_compiler() -> None:
    """Forget everything compiled and every count, as if the process had compiled nothing yet."""
    torch_compat.reset_dynamo()


def compile_switches() -> list[str]:
    """Reasons why torch.compile would run programs eagerly in this process, in words; empty when it compiles.

    Several of them are silent even under ``fullgraph=True`` (pytorch/pytorch#161790): a run must refuse to start.
    """
    reasons = [f"{name}={os.environ[name]}" for name in _OFF_VARIABLES if os.environ.get(name, "0") not in ("", "0")]
    config = torch_compat.compile_config()
    reasons += [
        f"torch._{name.replace('.', '.config.')}={config[name]!r}: {effect}"
        for name, effect in _OFF_SETTINGS.items()
        if config.get(name)
    ]
    stance = torch_compat.dynamo_stance()
    if stance not in _LOUD_STANCES:
        reasons.append(f"torch.compiler.set_stance({stance!r}) is active")
    # Fake tensors do not keep frames from being compiled, any other dispatch mode does.
    reasons += [f"the dispatch mode {m} is active" for m in torch_compat.dispatch_modes() if m != "FakeTensorMode"]
    return reasons


class CensusObserver:
    """Collects the :class:`Census` of one cell's compiled calls.

    Enter it, compile with :meth:`wrap_backend`, call through :meth:`call`, ask for :meth:`census` at any time.

    Args:
        fp8_ops: qualified names (``namespace::op``) of the provider's FP8 linear operators.
    """

    def __init__(self, fp8_ops: frozenset[str]) -> None:
        self._fp8_ops = fp8_ops
        self._log = TraceLog()
        self._counters: dict[str, dict[str, int]] = {}
        self._graphs = 0
        self._empty_graphs = 0
        self._captured = 0  # FP8 calls in graphs executed since the observer was made
        self._dropped = 0
        self._calls: list[CallSeen] = []
        self._steady_compiles = 0

    def __enter__(self) -> CensusObserver:
        self.rebase()
        self._log.__enter__()
        return self

    def rebase(self) -> None:
        """Count from here. Due after :func:`reset_compiler`: it zeroes counters that an earlier cell had moved, and a
        difference from the old values would hide as many frames as that cell had."""
        self._counters = _copy_counters()

    def __exit__(self, *exc: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._log.__exit__(*exc)

    def wrap_backend(self, name: str) -> Callable[..., Any]:
        """The backend ``name`` as a callable for ``torch.compile(backend=...)`` that counts what it is given.

        The compiled function is wrapped so that *running* a graph, not merely having it, adds to the captured calls.
        """
        compile_graph = torch_compat.lookup_backend(name)

        def counting_backend(graph: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
            # Counted before the backend sees the graph, since AOT rewrites it, and again in what AOT then says it made.
            fp8_calls = count_fp8_calls(graph, self._fp8_ops)
            if any(node.op.startswith("call_") for node in graph.graph.nodes):
                self._graphs += 1
            else:
                self._empty_graphs += 1
            before = len(self._log.events.forward_graphs)
            run = compile_graph(graph, inputs, **options)
            left = count_left_by_aot(fp8_calls, self._log.events.forward_graphs[before:], self._fp8_ops)
            self._dropped += fp8_calls - left

            def counted(*args: Any) -> Any:
                self._captured += left
                return run(*args)

            return counted

        return counting_backend

    def call(self, fn: Callable[..., Any], *args: Any, records: Sequence[TapRecord] = ()) -> Any:
        """``fn(*args)``, marked as one compiled call.

        ``records`` is the live list of the provider's tap: forward products that it gains meanwhile were executed. A
        call that raises is no call; its exception goes through.
        """
        captured, before = self._captured, len(records)
        result = fn(*args)
        self._calls.append(CallSeen(self._captured - captured, _forward_products(records[before:])))
        return result

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Every compilation inside, of a frame or of a backward graph, counts as one that should not have been."""
        events, frames = self._log.events.compilations, self._frames_seen()
        try:
            yield
        finally:
            # Frames that Dynamo gives up on before tracing leave a count and no event, under fullgraph the reverse.
            events, frames = self._log.events.compilations - events, self._frames_seen() - frames
            self._steady_compiles += max(events, frames)

    def census(self) -> Census:
        """What was seen since the observer was entered."""
        events = self._log.events
        frames = self._gained("frames")
        unimplemented = self._gained("unimplemented")
        return Census(
            frames_total=frames.get("total", 0),
            frames_ok=frames.get("ok", 0),
            graphs=self._graphs,
            empty_graphs=self._empty_graphs,
            backward_graphs=events.backward_graphs,
            breaks=events.break_sites(),
            counter_breaks=sum(self._gained("graph_break").values()),
            unimplemented=tuple(dict.fromkeys(unsupported_reason(text) for text in unimplemented)),
            recompiles=events.recompiles(),
            recompile_limit_hits=sum(count for text, count in unimplemented.items() if text.startswith(_LIMIT)),
            calls=tuple(self._calls),
            dropped_calls=self._dropped,
            steady_compiles=self._steady_compiles,
            config=recorded_config(),
        )

    def _frames_seen(self) -> int:
        return self._gained("frames").get("total", 0)

    def _gained(self, name: str) -> dict[str, int]:
        before = self._counters.get(name, {})
        live = torch_compat.dynamo_counters().get(name, {})
        return {key: count - before.get(key, 0) for key, count in live.items() if count > before.get(key, 0)}


def recorded_config() -> Mapping[str, Any]:
    """The settings of RECORDED_SETTINGS that this torch has."""
    config = torch_compat.compile_config()
    return {name: config[name] for name in RECORDED_SETTINGS if name in config}


def _forward_products(records: Sequence[TapRecord]) -> int:
    return sum(1 for record in records if record.product == "fprop" and record.phase == "forward")


def _copy_counters() -> dict[str, dict[str, int]]:
    return {name: dict(counts) for name, counts in torch_compat.dynamo_counters().items()}
