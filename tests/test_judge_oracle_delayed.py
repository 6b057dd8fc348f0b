"""harness.judge.oracle_delayed: when scales move, and what they move to."""

from __future__ import annotations

import math

from harness.judge.oracle import FP32_MAX
from harness.judge.oracle_delayed import Memories, Memory
from harness.types import Scalar, Spec


def delayed(**fields: Scalar) -> Spec:
    return Spec("delayed_scaling", tuple(sorted(fields.items())))


def test_a_scale_moves_after_the_step_that_recorded_and_history_rolls() -> None:
    memory = Memory(delayed(amax_history_len=3), "input")
    assert (memory.scale, memory.history) == (1.0, [0.0, 0.0, 0.0])
    memory.record(2.0)
    memory.record(1.5)  # folded with max into the running step
    assert memory.history == [2.0, 0.0, 0.0]
    memory.update()
    assert memory.scale == 224.0
    assert memory.history == [0.0, 0.0, 2.0]


def test_max_looks_at_the_whole_history_and_most_recent_at_the_last_step() -> None:
    for algorithm, wanted in (("max", 448 / 4.0), ("most_recent", 448 / 2.0)):
        memory = Memory(delayed(amax_history_len=4, amax_compute_algo=algorithm), "input")
        for amax in (4.0, 2.0):
            memory.record(amax)
            memory.update()
        assert memory.scale == wanted, algorithm


def test_a_recorded_amax_is_forgotten_after_history_length_steps() -> None:
    memory = Memory(delayed(amax_history_len=3), "input")
    scales = []
    for amax in (8.0, 1.0, 1.0, 1.0):
        memory.record(amax)
        memory.update()
        scales.append(memory.scale)
    assert scales == [56.0, 56.0, 56.0, 448.0]  # in history[-1], then history[0 + 1], then overwritten


def test_formats_margin_and_edge_amaxes() -> None:
    gradient = Memory(delayed(), "grad_output")
    gradient.record(1.0)
    gradient.update()
    assert gradient.scale == 57344.0
    margin = Memory(delayed(margin=2), "input")
    margin.record(1.0)
    margin.update()
    assert margin.scale == 112.0
    for amax, wanted in ((0.0, 1.0), (math.inf, 1.0), (math.nan, 1.0), (2.0**-140, FP32_MAX)):
        memory = Memory(delayed(), "input")
        memory.record(amax)
        memory.update()
        assert memory.scale == wanted, amax


def test_memories_update_only_what_took_part_and_only_its_own_direction() -> None:
    memories = Memories()
    recipe = delayed(amax_history_len=4)
    assert memories.use(0, "input", recipe, 2.0) == 1.0
    assert memories.use(0, "grad_output", recipe, 2.0) == 1.0
    memories.update("input", "weight")
    assert memories.use(0, "grad_output", recipe, 2.0) == 1.0  # its backward is not over
    assert memories.use(0, "input", recipe, 2.0) == 224.0
    memories.update("grad_output")
    assert memories.use(0, "grad_output", recipe, 2.0) == 28672.0
    memories.update("input", "weight")
    memories.update("input", "weight")  # nothing took part since: nothing moves
    assert memories.use(0, "input", recipe, 1.0) == 224.0


def test_another_recipe_goes_on_with_what_was_recorded() -> None:
    memories = Memories()
    for amax, length in ((2.0, 3), (4.0, 3), (1.0, 5)):
        memories.use(0, "input", delayed(amax_history_len=length), amax)
        memories.update("input", "weight")
    memory = memories._memories[0, "input"]
    # [running, 2, 4] with two rows of zeros behind, the running step's 1 at the end after the update.
    assert (memory.scale, memory.history) == (112.0, [0.0, 4.0, 0.0, 0.0, 1.0])
    shorter = delayed(amax_history_len=2, margin=1)
    assert memories.use(0, "input", shorter, 8.0) == 112.0
    memories.update("input", "weight")
    assert (memory.scale, memory.history) == (448.0 / 8.0 / 2.0, [0.0, 8.0])
