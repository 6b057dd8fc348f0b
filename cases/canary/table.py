"""The facts, with what each was measured to be, on which versions of torch.

Everything was measured on torch 2.11.0, 2.13.0 and 2.14.1 (CPU). A fact that differs between them carries PEP 440
ranges; a version beyond is held to the last one known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Union

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from cases.canary import counting, tracing
from cases.canary.ground import Ground

Measured = Union[str, Mapping[str, str]]


@dataclass(frozen=True)
class CanaryFact:
    """One fact. ``source``: a public report, or where it stands in this repository; ``measured``: one text, or by range
    of versions."""

    name: str
    source: str
    ask: Callable[[Ground], str]
    measured: Measured

    def expected(self, version: str) -> str:
        """What ``version`` of torch must say; pre-releases and local builds count as the release that they lead to."""
        if isinstance(self.measured, str):
            return self.measured
        release = Version(Version(version).base_version)
        for versions, text in self.measured.items():
            if SpecifierSet(versions).contains(release):
                return text
        return f"not measured on torch {version}"


_CENSUS = "docs/census.md"
_REFUSALS = "harness/fp8/tracing.py"
_BLIND = "counter 0, graphs 0, trace events 0, eager frames 0"
_INTERNAL = "InternalTorchDynamoError with the text"

# ---- the two tables of docs/census.md: each signal, and where it is blind ------------------------------------------
_ROWS = (
    CanaryFact(
        "print in the middle",
        _CENSUS,
        counting.row(counting.prints),
        "counter 1, graphs 2, trace events 1, eager frames 0, explain 1",
    ),
    CanaryFact(
        "if on a tensor",
        _CENSUS,
        counting.row(counting.branches),
        "counter 0, graphs 2, trace events 1, eager frames 0, explain 1",
    ),
    CanaryFact(
        "break inside a user context manager",
        "pytorch/pytorch#150477",
        counting.row(counting.breaks_in_region),
        "counter 0, graphs 0, trace events 1, eager frames 1, explain -1",
    ),
    CanaryFact(
        "break in a loop",
        _CENSUS,
        counting.row(counting.breaks_in_loop),
        "counter 0, graphs 0, trace events 1, eager frames 1, explain -1",
    ),
    CanaryFact(
        "break in a context manager's entry and exit",
        _CENSUS,
        counting.row(counting.breaks_at_edges),
        "counter 2, graphs 0, trace events 3, eager frames 1, explain -1",
    ),
    CanaryFact(
        "break in an inlined callee",
        "pytorch/pytorch#110730",
        counting.row(counting.breaks_in_callee),
        "counter 2, graphs 3, trace events 2, eager frames 0, explain 2",
    ),
    CanaryFact(
        "twelve settings of a function",
        "pytorch/pytorch#128319",
        counting.recompile_limit,
        "counter 0, graphs 8, trace events 0, eager frames 1",
    ),
    CanaryFact(
        "break in the region of two layers",
        _CENSUS,
        counting.break_beside_layers,
        "counter 0, graphs 2, trace events 1, eager frames 2, captured 2 of 2",
    ),
    CanaryFact(
        "active dispatch mode, cold", "pytorch/pytorch#161790", counting.dispatch_mode, f"{_BLIND}, captured 0 of 2"
    ),
    CanaryFact(
        "force_eager stance under fullgraph",
        "pytorch/pytorch#161790",
        counting.force_eager,
        f"{_BLIND}, captured 0 of 2",
    ),
    CanaryFact(
        "twelve settings of a layer",
        _CENSUS,
        counting.settings_of_a_layer,
        "counter 0, graphs 8, trace events 0, eager frames 1, captured 8 of 12",
    ),
)

# ---- counters, limits and defaults ---------------------------------------------------------------------------------
_COUNTERS = (
    CanaryFact(
        "recompile limit under fullgraph",
        "pytorch/pytorch#128319",
        counting.recompile_limit_under_fullgraph,
        "FailOnRecompileLimitHit",
    ),
    CanaryFact("counters after a reset", "pytorch/pytorch#110107", counting.counters_after_reset, "kept"),
    CanaryFact("compilation metrics after a reset", _CENSUS, counting.metrics_after_reset, "2 kept of at most 64"),
    CanaryFact("frames counted under fullgraph", _CENSUS, counting.frames_under_fullgraph, "frames 0, graphs 1"),
    CanaryFact(
        "graphs of two shapes", "pytorch/pytorch#110730", counting.unique_graphs, "given to the backend 2, counted 2"
    ),
    CanaryFact("fail_on_recompile stance", _CENSUS, counting.fail_on_recompile, "warm: returned; cold: RuntimeError"),
    CanaryFact(
        "class attribute written in compiled code",
        "pytorch/pytorch#144874",
        counting.class_attribute,
        {
            "<2.13": "counter 1, graphs 1, trace events 1, eager frames 0",
            ">=2.13": "counter 0, graphs 1, trace events 0, eager frames 0",
        },
    ),
    CanaryFact(
        "defaults of settings that shift counts",
        _CENSUS,
        counting.defaults,
        "nested_graph_breaks False, recompile_limit 8, suppress_errors False",
    ),
)

# ---- an autocast under Dynamo --------------------------------------------------------------------------------------
_REGIONS = (
    CanaryFact(
        "nested regions in one graph",
        "NVIDIA/TransformerEngine#2759",
        tracing.nested_is_one_graph,
        "eager: graphs 1, bit-equal to eager; aot_eager: graphs 1, bit-equal to eager",
    ),
    CanaryFact(
        "what an operator in a compiled region sees",
        "pytorch/pytorch#190578",
        tracing.operator_sees_no_region,
        "depth eagerly 1, eager 0, aot_eager 0",
    ),
    CanaryFact("A, B, A, B, A, none around a compiled layer", _CENSUS, tracing.region_around, "graphs 3"),
    CanaryFact(
        "twelve resets between calls", "NVIDIA/TransformerEngine#2759", tracing.resets, "in place 1 graph(s), swapped 1"
    ),
    CanaryFact(
        "twelve resets in the region",
        "NVIDIA/TransformerEngine#2759",
        tracing.reset_inside,
        "graphs 1, depth after it 0",
    ),
    CanaryFact(
        "container filled by the first call",
        "pytorch/pytorch#171488",
        tracing.container_written_while_tracing,
        "graphs 2",
    ),
    CanaryFact(
        "first-module flag claimed in a compiled module", "harness/fp8/state.py", tracing.flag_claimed, "graphs 2"
    ),
    CanaryFact("counter in the state, four calls", "pytorch/pytorch#128319", tracing.monotonic_counter, "graphs 4"),
)

# ---- how a refusal reaches the user: fullgraph off and on -----------------------------------------------------------
_RAISED = (
    CanaryFact("refusal by raise", _REFUSALS, tracing.plain_raise, "off: returned; on: Unsupported with the text"),
    CanaryFact(
        "refusal by raise where breaks are errors",
        "pytorch/pytorch#166589",
        tracing.raise_where_breaks_are_errors,
        "off: returned; on: Unsupported with the text",
    ),
    CanaryFact(
        "refusal in comptime", _REFUSALS, tracing.raise_in_comptime, "off: returned; on: UserError with the text"
    ),
    CanaryFact(
        "refusal in a constant function", _REFUSALS, tracing.raise_in_constant, f"off: {_INTERNAL}; on: {_INTERNAL}"
    ),
    CanaryFact(
        "the same, caught in the compiled function",
        _REFUSALS,
        tracing.raise_in_constant_caught,
        f"off: {_INTERNAL}; on: {_INTERNAL}",
    ),
    CanaryFact(
        "refusal in a fake implementation",
        _REFUSALS,
        tracing.raise_in_fake,
        "off: TorchRuntimeError with the text; on: TorchRuntimeError with the text",
    ),
    CanaryFact(
        "refusal in a disabled function",
        _REFUSALS,
        tracing.raise_in_disabled,
        "off: Refused with the text; on: Unsupported without the text",
    ),
    CanaryFact(
        "refusal in an operator whose result nobody needs",
        _REFUSALS,
        tracing.raise_in_unused_operator,
        "eager off: ValueError with the text; on: ValueError with the text; aot_eager off: returned; on: returned",
    ),
    CanaryFact(
        "exception in a region",
        "pytorch/pytorch#195488",
        tracing.raise_in_region,
        "off: ValueError with the text; on: Unsupported with the text; depth after it 0",
    ),
    CanaryFact(
        "operator that raises in a region",
        "pytorch/pytorch#195488",
        tracing.operator_raises_in_region,
        "eager off: ValueError with the text; on: ValueError with the text; "
        "aot_eager off: ValueError with the text; on: ValueError with the text; depth after it 0",
    ),
    CanaryFact(
        "constant function whose answer changed",
        "pytorch/pytorch#128437",
        tracing.constant_goes_stale,
        "1 for 2 before a reset, 2 after it",
    ),
)

# ---- contexts from elsewhere, checkpoints, threads, modes, backward -------------------------------------------------
_OTHERS = (
    CanaryFact(
        "contextlib region made outside",
        "cases/hoisted.py",
        tracing.hoisted_generator,
        "off: eager frames 2; on: Unsupported",
    ),
    CanaryFact(
        "region of a class made outside",
        "cases/hoisted.py",
        tracing.hoisted_class,
        {"<2.14": "off: eager frames 1; on: Unsupported", ">=2.14": "off: eager frames 0; on: returned"},
    ),
    CanaryFact("region as decorator", "cases/hoisted.py", tracing.decorated, "graphs 1, captured 2 of 2"),
    CanaryFact(
        "region in a checkpointed body",
        "harness/fp8/checkpoint.py",
        tracing.region_in_checkpoint,
        "as it is: off: returned; on: Unsupported; with the setting: off: returned; on: returned",
    ),
    CanaryFact(
        "forwards of a checkpointed layer behind another",
        "harness/torch_compat.py",
        tracing.recompute_is_dead,
        {"<2.13": "forwards: eager 2, aot_eager 2", ">=2.13": "forwards: eager 3, aot_eager 2"},
    ),
    CanaryFact(
        "an open region in another thread", "cases/threads.py", tracing.other_thread, "depth 1 in another thread"
    ),
    CanaryFact("train, eval, no_grad, inference_mode, twice", _CENSUS, tracing.mode_toggles, "graphs 3"),
    CanaryFact(
        "backward elsewhere",
        "pytorch/pytorch#138215",
        tracing.backward_elsewhere,
        "twice equal, in another region equal, compiled equal",
    ),
    CanaryFact("backward graphs by backend", _CENSUS, tracing.backward_graphs, "eager 0, aot_eager 1"),
    CanaryFact(
        "compiled call on fake tensors",
        "docs/evidence.md",
        tracing.traced_without_running,
        "graphs 1, results with data 0",
    ),
    CanaryFact(
        "API of opaque constants",
        "harness/torch_compat.py",
        tracing.opaque_api,
        {"<2.14": "register_opaque_type", ">=2.14": "register_custom_class, register_opaque_type"},
    ),
)

FACTS = (*_ROWS, *_COUNTERS, *_REGIONS, *_RAISED, *_OTHERS)
