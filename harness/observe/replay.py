"""Was a call a replay? What one call of a captured program leaves: graphs launched, and what Python still ran.

No single sign is enough. A call that never was captured gives right results (pytorch/pytorch#193044), a skip counter of
zero says nothing about operators that were partitioned away, and a launched graph may hold half of the program. So:
graphs were launched, Python ran no FP8 product, and the result follows inputs that Python never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness.observe.evidence import profile_step
from harness.torch_compat import GraphSkips

if TYPE_CHECKING:
    from harness.providers.protocol import Provider

Tensors = list[torch.Tensor]

# The host's call that starts a captured graph, as the profiler names it on CUDA and on ROCm.
LAUNCHES = ("cudaGraphLaunch", "hipGraphLaunch")


@dataclass(frozen=True)
class Replay:
    """One call: its results, how many graphs it launched, how many FP8 products Python ran meanwhile."""

    results: Tensors
    launches: int
    products: int


@dataclass(frozen=True)
class Statement:
    """A fact about replays, in words."""

    name: str
    expected: object
    seen: object


def watch(provider: Provider, call: Callable[[], Tensors]) -> Replay:
    """Run ``call`` once under the profiler and the provider's tap; results are copied."""
    results: Tensors = []
    with provider.tap() as records:
        profile = profile_step(lambda: results.extend(tensor.detach().clone() for tensor in call()))
        return Replay(results, graph_launches(profile), len(records))


def graph_launches(profile: torch.profiler.profile) -> int:
    """Graphs that were launched in a profiled stretch."""
    return sum(event.count for event in profile.key_averages() if event.key in LAUNCHES)


def statements(name: str, seen: Replay, graphs: int, expected: Sequence[torch.Tensor]) -> list[Statement]:
    """What must hold of a replay: at least ``graphs`` launches, no product of Python's, eager's bits on its data."""
    enough = f"at least {graphs}"
    launched = enough if seen.launches >= graphs else str(seen.launches)
    return [
        Statement(f"{name}: graphs launched", enough, launched),
        Statement(f"{name}: FP8 products that Python ran", 0, seen.products),
        Statement(f"{name}: tensors that differ from those of eager", [], differing(seen.results, expected)),
    ]


def differing(seen: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> list[int]:
    """Positions at which two lists of tensors differ in any bit, or at which one has none."""
    longer = range(max(len(seen), len(expected)))
    return [i for i in longer if i >= min(len(seen), len(expected)) or not torch.equal(seen[i], expected[i])]


def distinct(replays: Sequence[Replay]) -> int:
    """How many different first results there are: replays that ignore their inputs all give the same."""
    kept: Tensors = []
    for replay in replays:
        if not any(torch.equal(replay.results[0], other) for other in kept):
            kept.append(replay.results[0])
    return len(kept)


def skips_in_words(seen: GraphSkips) -> str:
    """ "none", or how many captures Inductor left out and why."""
    if not seen.count and not seen.reasons:
        return "none"
    return f"{max(seen.count, len(seen.reasons))}: {'; '.join(dict.fromkeys(seen.reasons)) or 'no reason was logged'}"
