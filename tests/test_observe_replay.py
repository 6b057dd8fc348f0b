"""harness.observe.replay: what proves a replay, on numbers made up and on profiles of the CPU."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from harness import torch_compat
from harness.observe.evidence import profile_step
from harness.observe.replay import (
    LAUNCHES,
    Replay,
    differing,
    distinct,
    graph_launches,
    skips_in_words,
    statements,
    watch,
)
from harness.torch_compat import GraphSkips

ONE, TWO = torch.ones(2), torch.full((2,), 2.0)


def failed(replay: Replay, graphs: int = 2, expected: Any = (ONE,)) -> list[str]:
    return [said.name for said in statements("r", replay, graphs, expected) if said.expected != said.seen]


def test_a_replay_states_three_things_and_all_hold() -> None:
    replay = Replay([ONE], launches=2, products=0)
    assert len(statements("r", replay, 2, [ONE])) == 3
    assert failed(replay) == []
    assert failed(Replay([ONE], launches=3, products=0)) == []  # a graph may be captured in parts


@pytest.mark.parametrize(
    ("replay", "name"),
    [
        (Replay([ONE], launches=0, products=0), "r: graphs launched"),
        (Replay([ONE], launches=1, products=0), "r: graphs launched"),
        (Replay([ONE], launches=2, products=6), "r: FP8 products that Python ran"),
        (Replay([TWO], launches=2, products=0), "r: tensors that differ from those of eager"),
        (Replay([], launches=2, products=0), "r: tensors that differ from those of eager"),
    ],
)
def test_each_sign_fires_alone(replay: Replay, name: str) -> None:
    assert failed(replay) == [name]


def test_tensors_that_differ_are_named_by_position() -> None:
    assert differing([ONE, TWO], [ONE, TWO]) == []
    assert differing([ONE, ONE], [ONE, TWO]) == [1]
    assert differing([ONE], [ONE, TWO]) == [1]
    assert differing([ONE, TWO, TWO], [TWO]) == [0, 1, 2]


def test_results_that_never_change_are_one() -> None:
    replays = [Replay([tensor], 1, 0) for tensor in (ONE, TWO, ONE)]
    assert distinct(replays) == 2
    assert distinct([replays[0]] * 3) == 1


def test_launches_are_counted_by_name() -> None:
    def launching(times: int) -> None:
        for _ in range(times):
            with torch.profiler.record_function(LAUNCHES[0]):
                torch.ones(2).add(1)

    assert graph_launches(profile_step(lambda: launching(3))) == 3
    assert graph_launches(profile_step(lambda: torch.ones(2).add(1))) == 0


def test_watching_copies_results_and_counts_what_the_tap_saw() -> None:
    class Tapped:
        @contextmanager
        def tap(self) -> Any:
            yield records

    records: list[str] = []
    static = torch.zeros(2)

    def call() -> list[torch.Tensor]:
        records.append("product")
        return [static]

    seen = watch(Tapped(), call)  # type: ignore[arg-type]
    static.fill_(5)  # the next replay writes there
    assert (seen.products, seen.launches) == (1, 0)
    assert torch.equal(seen.results[0], torch.zeros(2))


def test_skips_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_compat, "_skip_counter", lambda: 2)
    assert skips_in_words(GraphSkips([], count_before=2)) == "none"
    assert skips_in_words(GraphSkips([], count_before=1)) == "1: no reason was logged"
    assert skips_in_words(GraphSkips(["mutated inputs", "mutated inputs"], count_before=0)) == "2: mutated inputs"


def test_skips_are_collected_with_their_reasons() -> None:
    from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter as skip

    with torch_compat.graph_skips() as seen:
        assert (seen.reasons, seen.count) == ([], 0)
        skip("skipping cudagraphs due to cpu device (x)")
        assert (seen.reasons, seen.count) == (["skipping cudagraphs due to cpu device (x)"], 1)
    skip("after the context")
    assert len(seen.reasons) == 1
    assert not logging.getLogger(torch_compat._GRAPHS_LOG).handlers
