"""Parts: an exception ends one and is kept, state is compared over it, settings changed between parts are not lost."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from harness.observe.recorder import Recorder
from harness.observe.state import diff, torch_state
from tests.support.fake_provider import STATE, FakeProvider
from tests.test_observe_state import LEAKS

BEFORE = torch_state()


@pytest.fixture
def recorder() -> Recorder:
    provider = FakeProvider()
    provider.reset()
    return Recorder(provider)


def test_quiet_part_leaves_nothing_but_its_time(recorder: Recorder) -> None:
    with recorder.part("eager", "after eager", timed="eager_s") as part:
        pass
    assert not part.failed
    assert (recorder.errors, recorder.diffs, recorder.notes) == ([], [], [])
    assert set(recorder.timing) == {"eager_s"}
    assert recorder.state_keys > 0


def test_exception_is_kept_with_the_phase_it_came_in(recorder: Recorder) -> None:
    with recorder.part("compile", "after compile", timed="compile_s") as part:
        part.enter_phase("backward")
        STATE.enabled = True
        raise ValueError("product")
    recorder.provider.reset()
    assert part.failed
    assert [(error.phase, error.message) for error in recorder.errors] == [("backward", "product")]
    assert [(item.moment, item.key) for item in recorder.diffs] == [("after exception (backward)", "enabled")]
    assert recorder.timing == {}


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass(recorder: Recorder, kind: type[BaseException]) -> None:
    with pytest.raises(kind), recorder.part("eager", "after eager"):
        raise kind
    assert recorder.errors == []


def test_leak_is_reported_once_and_where_it_happened(recorder: Recorder) -> None:
    with recorder.part("eager", "first"):
        STATE.depth = 1
    with recorder.part("eager", "second"):
        pass
    recorder.provider.reset()
    assert [item.moment for item in recorder.diffs] == ["first"]


def test_stateless_part_compares_nothing(recorder: Recorder) -> None:
    with recorder.part("build", "after build", stateless=True):
        torch.rand(1)
        STATE.depth = 1
    recorder.provider.reset()
    assert recorder.diffs == []


def test_settings_changed_between_parts_show_in_the_next_one(recorder: Recorder) -> None:
    with recorder.part("eager", "first"):
        pass
    with torch._dynamo.config.patch(recompile_limit=99):
        with recorder.part("eager", "second"):
            pass
    assert [(item.moment, item.key) for item in recorder.diffs] == [("second", "dynamo.recompile_limit")]


def test_generators_moved_by_the_first_eager_run_are_the_programs_own(recorder: Recorder) -> None:
    with recorder.part("eager", "after eager"):
        torch.rand(1)
        STATE.depth = 1
    recorder.allow_rng_of_program()
    with recorder.part("compile", "after compile"):
        torch.rand(1)
    recorder.provider.reset()
    assert [item.key for item in recorder.diffs] == ["depth"]
    assert len(recorder.notes) == 1


def test_generators_moved_later_only_are_a_difference(recorder: Recorder) -> None:
    with recorder.part("eager", "after eager"):
        pass
    recorder.allow_rng_of_program()
    with recorder.part("compile", "after compile"):
        torch.rand(1)
    assert [item.key for item in recorder.diffs] == ["torch.rng.cpu"]
    assert recorder.notes == []


@pytest.mark.parametrize("name", ["flop counter", "fake tensors", "default device", "inference mode"])
def test_what_was_left_does_not_break_the_comparison_and_stays_for_the_program(
    recorder: Recorder, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading clones tensors and hashes generators: under fake tensors neither has any data."""
    leak, keys = {**LEAKS, "fake tensors": (FakeTensorMode, {"torch.dispatch_modes"})}[name]
    monkeypatch.setattr(recorder.provider, "snapshot", lambda: {"scale": torch.ones(2)})
    left = contextlib.ExitStack()
    with left:
        with recorder.part("eager", "after eager"):
            left.enter_context(leak())
        states = recorder.states()
        assert keys <= {item.key for item in recorder.diffs if item.moment == "after eager"}
        recorder.compare_states(states, "later")
        assert {item.moment for item in recorder.diffs} == {"after eager"}
        assert keys <= {item.key for item in diff(BEFORE, torch_state(), "")}


def test_unlike_what_was_found(recorder: Recorder) -> None:
    initial = recorder.snapshot()
    torch.rand(1)
    assert not recorder.unlike(initial)
    with torch.no_grad():
        assert recorder.unlike(initial)
    assert not recorder.unlike(initial)


def test_reset_that_replaces_an_object_is_named_once(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = iter([1, 2, 2, 1, 1, 3])  # the second reset brings the first object's address back
    monkeypatch.setattr(recorder.provider, "snapshot", lambda: {"state.id": next(addresses), "depth": 0})
    for _ in range(3):
        recorder.reset_provider()
    assert [(item.moment, item.key) for item in recorder.diffs] == [("reset", "state.id")]


def test_reset_in_place_is_no_difference(recorder: Recorder) -> None:
    STATE.depth = 3
    recorder.reset_provider()
    assert recorder.diffs == []


def test_state_that_can_not_be_read_after_an_exception_is_put_down_to_it(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a lost CUDA context whoever looks next fails."""

    def unreadable(*args: object, **kwargs: object) -> None:
        raise ValueError("unreadable")

    monkeypatch.setattr(recorder, "compare", unreadable)
    with pytest.raises(ValueError, match="unreadable") as raised, recorder.part("eager", "after eager"):
        raise RuntimeError("CUDA error: device-side assert triggered")
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert recorder.errors[0].type == "RuntimeError"
    with pytest.raises(ValueError, match="unreadable") as raised, recorder.part("eager", "after eager"):
        pass
    assert raised.value.__cause__ is None


def test_the_programs_own_settings_are_no_leak_and_another_is(recorder: Recorder) -> None:
    with recorder.part("eager", "before"):
        pass
    with recorder.under({"dynamo.recompile_limit": 3}), recorder.part("compile", "inside"):
        pass
    with recorder.part("eager", "after"):
        pass
    assert recorder.diffs == []
    with recorder.under({"dynamo.recompile_limit": 3}), recorder.part("compile", "inside"):
        torch._dynamo.config.cache_size_limit, limit = 5, torch._dynamo.config.cache_size_limit
    torch._dynamo.config.cache_size_limit = limit
    assert [item.moment for item in recorder.diffs if "limit" in item.key][:1] == ["inside"]


def test_what_moved_inside_a_region_is_counted_and_not_kept(recorder: Recorder) -> None:
    before = recorder.states()
    assert recorder.moved(before) == 0
    STATE.enabled = True
    assert recorder.moved(before) == 1
    assert recorder.diffs == []
    recorder.provider.reset()
