"""harness.observe.draws: the same numbers for the same step, others for another; other generators than torch's."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy
import pytest
import torch

from harness.observe.draws import other_generators, seed_draws


@pytest.fixture(autouse=True)
def generators_as_they_were() -> Iterator[None]:
    kept = random.getstate(), numpy.random.get_state()
    with torch.random.fork_rng():
        yield
    random.setstate(kept[0])
    numpy.random.set_state(kept[1])


def drawn(seed: int, index: int) -> tuple[float, float, float]:
    seed_draws(seed, index)
    return float(torch.rand(1)), random.random(), float(numpy.random.rand())


def test_a_step_draws_the_same_whoever_runs_it_and_no_two_steps_do() -> None:
    first = drawn(0, 3)
    torch.rand(7)
    assert drawn(0, 3) == first
    for other in (drawn(0, 4), drawn(1, 3)):
        assert all(a != b for a, b in zip(first, other, strict=True))


def test_draws_of_python_and_numpy_are_found() -> None:
    before = other_generators()
    torch.rand(1)
    assert other_generators() == before
    random.random()
    moved = other_generators()
    assert moved != before
    numpy.random.rand()
    assert other_generators() != moved
