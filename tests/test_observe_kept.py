"""Memory that stays in use call after call is found, whoever holds it; what is kept once, comes and goes, or belongs to
the harness, is not."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from harness import torch_compat
from harness.observe import kept as kept_module
from harness.observe.kept import KeptWatch, allocation_grew, grew, memory_grew, tensors_pile_up
from harness.observe.types import Kept, Left, StepTensors

CALLS = 10
CPU = torch.device("cpu")
with torch_compat.fake_tensor_mode(lambda op, args: None):
    _FAKE = torch.ones(2)
_SPARSE = torch.eye(2).to_sparse()


def _seen(call: Callable[[int], object], calls: int = CALLS) -> Kept:
    watch = KeptWatch(CPU, torch.nn.Linear(1, 1), {})
    watch.start()
    for index in range(calls):
        call(index)
        watch.after_call()
    return watch.seen()


class Keeper:
    """Keeps tensors in the ways that libraries do; each method is one call."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.slots: dict[object, Any] = {}

    def list_grows(self, index: int) -> None:
        self.kept.append(torch.ones(2))

    def every_third_call(self, index: int) -> None:
        if index % 3 == 1:
            self.kept.append(torch.ones(2))

    def by_identity(self, index: int) -> None:
        key = torch.ones(2)
        self.slots[key] = (key * 2, "scale")

    def graph_grows(self, index: int) -> None:
        self.kept.append(torch.ones(2, requires_grad=True).exp().sum())

    def empty_ones(self, index: int) -> None:
        self.kept.append(torch.ones(0))

    def latest(self, index: int) -> None:
        self.slots[0] = torch.ones(2)

    def by_turns(self, index: int) -> None:
        self.slots[index % 3] = torch.ones(2)

    def late(self, index: int) -> None:
        if index >= 4:
            self.slots.setdefault("late", torch.ones(2))

    def one_of_many_replaced(self, index: int) -> None:
        self.slots["scale"] = torch.ones(2) if index in (2, 7) else self.slots.get("scale")

    def views(self, index: int) -> None:
        self.kept.append(self.slots.setdefault(0, torch.ones(CALLS))[index:])

    def cycle(self, index: int) -> None:
        cycle: list[object] = [torch.ones(2)]
        cycle.append(cycle)

    def without_memory(self, index: int) -> None:
        self.kept.append(_SPARSE.clone())

    def fake(self, index: int) -> None:
        self.kept.append(_FAKE.clone())


GROWING = ("list_grows", "every_third_call", "by_identity", "graph_grows", "empty_ones")
STEADY = ("latest", "by_turns", "late", "one_of_many_replaced", "views", "cycle", "without_memory", "fake")


@pytest.mark.parametrize("name", GROWING)
def test_what_piles_up_is_seen(name: str) -> None:
    kept = _seen(getattr(Keeper(), name))
    assert grew(kept)
    assert kept.calls == CALLS


@pytest.mark.parametrize("name", STEADY)
def test_what_is_kept_once_or_comes_and_goes_is_no_growth(name: str) -> None:
    assert not grew(_seen(getattr(Keeper(), name)))


def test_what_is_left_is_told_in_words_and_bytes() -> None:
    keeper = Keeper()
    kept = _seen(keeper.list_grows)
    assert kept.left == tuple(Left(stretch, 8, "(2,) float32 on cpu") for stretch in (0, 0, 0, 1, 1, 1, 2, 2, 2))
    del keeper
    assert not _seen(lambda index: None).left


def test_too_few_calls_say_nothing() -> None:
    assert not grew(_seen(Keeper().list_grows, calls=8))


def test_garbage_is_collected_before_it_is_called_growth() -> None:
    """Found once and then in a cycle: only a full collection tells that nobody holds it."""
    found = Keeper()

    def call(index: int) -> None:
        found.list_grows(index)
        if index == CALLS - 1:
            found.kept.append(found.kept)  # what was kept is a cycle now
            found.kept = []

    gc.disable()
    try:
        assert not grew(_seen(call))
    finally:
        gc.enable()


def test_results_and_gradients_are_the_harness_own() -> None:
    model, results = torch.nn.Linear(2, 2), dict[int, StepTensors]()
    watch = KeptWatch(CPU, model, results)
    watch.start()
    for index in range(CALLS):
        output = torch.ones(2)
        grads = {"x": torch.ones(2)}
        results[index] = StepTensors(output.clone(), grads, {"w": torch.ones(2)}, output.detach())
        model.weight.grad = torch.ones(2, 2)
        watch.after_call()
    assert not watch.seen().left
    results.pop(0)
    assert not watch.seen().left


@pytest.mark.parametrize("leaks", [False, True])
def test_a_promotion_within_a_stretch_hides_nothing_and_blames_nobody(leaks: bool) -> None:
    """A library that collects by itself moves the stretch's tensors to the old ones, where all those of before are."""
    before, keeper = [torch.ones(2) for _ in range(5)], Keeper()

    def call(index: int) -> None:
        if leaks:
            keeper.list_grows(index)
        if index % 3 == 1:
            gc.collect()

    assert grew(_seen(call)) is leaks
    assert len(before) == 5


def test_a_mode_that_was_left_active_has_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(func)

    held = torch.ones(2)
    watch = KeptWatch(CPU, torch.nn.Linear(1, 1), {0: StepTensors(held, {}, {}, held)})
    with Broken():
        watch.start()
        for _ in range(CALLS):
            watch.after_call()
        seen = watch.seen()
    assert (seen.calls, seen.left, seen.allocated) == (CALLS, (), ())


def test_files_that_each_call_leaves_open_are_counted_and_red() -> None:
    watch = KeptWatch(CPU, torch.nn.Linear(1, 1), {})
    opened: list[int] = []
    try:
        watch.start()
        for _ in range(CALLS):
            opened.append(os.open(os.devnull, os.O_RDONLY))
            watch.after_call()
        seen = watch.seen()
    finally:
        for descriptor in opened:
            os.close(descriptor)
    files = [item.files - seen.handles[0].files for item in seen.handles]
    assert files == [0, 3, 6, 9, 10]
    assert grew(seen)
    assert not memory_grew(seen)


def _stretches(*stretches: int) -> tuple[Left, ...]:
    return tuple(Left(stretch, 4, "one") for stretch in stretches)


@pytest.mark.parametrize(
    ("left", "red"), [((0, 1, 2), True), ((2, 0, 1, 1), True), ((0, 2), False), ((1, 1, 2), False), ((), False)]
)
def test_every_stretch_must_leave_some(left: tuple[int, ...], red: bool) -> None:
    assert tensors_pile_up(_stretches(*left)) is red
    assert grew(Kept(CALLS, _stretches(*left))) is red


@pytest.mark.parametrize(
    ("allocated", "red"),
    [
        (tuple(range(10)), True),
        ((0, 0, 1, 1, 1, 2, 2, 2, 3, 3), True),  # once in three calls
        ((5,) * 10, False),
        ((0, 8, 8) * 3 + (0,), False),  # steps that differ by turns
        ((0, 0, 9, 9, 9, 9, 9, 9, 9, 9), False),  # made late, once
        ((0, 0, 0, 1, 1, 1, 2, 2, 2, 0), False),  # garbage, gone with the last count
        ((9, 8, 7, 6, 5, 4, 3, 2, 1, 0), False),
        (tuple(range(9)), False),  # too few calls
        ((), False),
    ],
)
def test_growth_of_what_an_allocator_counts(allocated: tuple[int, ...], red: bool) -> None:
    assert allocation_grew(allocated) is red
    assert grew(Kept(CALLS, allocated=allocated)) is red


@pytest.mark.parametrize(
    ("backend", "counted"), [("native", "requested_bytes"), ("cudaMallocAsync", "allocated_bytes"), ("pluggable", "")]
)
def test_a_gpu_allocator_counts_what_python_does_not_know(
    backend: str, counted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = iter(range(100, 200))
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: backend)
    stats = lambda device: {counted: {"all": {"current": next(taken)}}}  # noqa: E731
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", stats)
    watch = KeptWatch(torch.device("cuda"), torch.nn.Linear(1, 1), {})
    watch.start()
    for _ in range(CALLS):
        watch.after_call()
    kept = watch.seen()
    assert grew(kept) is bool(counted)
    # Counted once more after the garbage was collected.
    assert kept.allocated == ((*range(100, 109), 110) if counted else ())


def test_bytes_that_the_harness_keeps_are_taken_off_once_for_each_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU stands for a GPU: each output has views beside it, and is counted once."""
    results: dict[int, StepTensors] = {}
    used: list[torch.Tensor] = []
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    monkeypatch.setattr(kept_module, "_GPU", "cpu")
    stats = lambda device: {"requested_bytes": {"all": {"current": 64 + sum(map(_nbytes, used))}}}  # noqa: E731
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", stats)
    watch = KeptWatch(CPU, torch.nn.Linear(1, 1), results)
    watch.start()
    for index in range(CALLS):
        output = torch.ones(4)
        view = output[1:]
        used.append(output)
        results[index] = StepTensors(output, {"input0": view}, {}, view)
        del output, view
        watch.after_call()
    assert watch.seen().allocated == (64,) * CALLS


def _nbytes(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().nbytes())
