"""Torch's settings are put back whoever left them, and a leak that was set aside is in force again afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch

from harness.observe.state import compiler_settings, diff, generator_states, torch_state
from harness.observe.torch_settings import SETTINGS, as_found, ending_here, put_back, read_settings
from tests.test_observe_state import LEAKS, DispatchMode, FunctionMode


def state() -> Mapping[str, Any]:
    return {**torch_state(), **compiler_settings()}


def changed(before: Mapping[str, Any]) -> set[str]:
    # inductor.deterministic follows torch's flag on some versions only.
    return {item.key for item in diff(before, state(), "")} - {"inductor.deterministic"}


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_set_aside_and_comes_back(name: str) -> None:
    leak, keys = LEAKS[name]
    found, before = read_settings(), state()
    with leak():
        with as_found(found):
            assert changed(before) == set()
        assert changed(before) == keys - {"inductor.deterministic"}
    assert changed(before) == set()


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_that_nobody_mends_ends(name: str) -> None:
    found, before = read_settings(), state()
    with contextlib.suppress(ZeroDivisionError), ending_here():
        left = LEAKS[name][0]()  # some begin as they are made
        left.__enter__()
        assert changed(before)
        raise ZeroDivisionError
    assert changed(before) == set()
    assert torch.compile(lambda x: x * 2, backend="eager", fullgraph=True)(torch.ones(1)) == 2  # Dynamo knows it too
    with contextlib.suppress(Exception):  # there may be nothing to leave; later than here the collector would leave it
        left.__exit__(None, None, None)
    put_back(found)


def test_reading_changes_nothing() -> None:
    before, drawn = state(), generator_states()
    read_settings()
    put_back(read_settings())
    assert (changed(before), generator_states()) == (set(), drawn)


def test_a_mode_is_not_seen_by_what_sets_it_aside() -> None:
    class Counting(DispatchMode):
        calls = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            type(self).calls += 1
            return super().__torch_dispatch__(func, types, args, kwargs)

    found = read_settings()
    with Counting():
        with as_found(found):
            torch.ones(2) + 1
        assert Counting.calls == 0
        torch.ones(2) + 1
    assert Counting.calls > 0


def test_stacks_come_back_in_their_order() -> None:
    class Inner(DispatchMode):
        pass

    class InnerFunction(FunctionMode):
        pass

    seen: list[str] = []

    def hooks(name: str) -> Any:
        return torch.autograd.graph.saved_tensors_hooks(lambda x: seen.append(name) or x, lambda x: x)

    found = read_settings()
    with DispatchMode(), Inner(), FunctionMode(), InnerFunction(), hooks("outer"), hooks("inner"):
        with as_found(found):
            torch.ones(1, requires_grad=True).exp()
            assert seen == []
        left = torch_state()
        torch.ones(1, requires_grad=True).exp()
    assert left["torch.dispatch_modes"] == ("DispatchMode", "Inner")
    assert left["torch.function_modes"] == ("FunctionMode", "InnerFunction")
    assert seen == ["inner"]


def test_settings_that_were_in_force_before_stay() -> None:
    """Who runs cells in a process of his own (pytest) keeps what he has set."""
    with torch.no_grad(), torch.autocast("cpu"), DispatchMode():
        before = state()
        with ending_here():
            torch.set_grad_enabled(True)
            torch.set_default_dtype(torch.float64)
        assert changed(before) == set()
        assert not torch.is_grad_enabled()


def test_hooks_are_put_back_where_torch_looks_for_them() -> None:
    seen: list[str] = []

    @contextlib.contextmanager
    def hook() -> Iterator[None]:
        handle = torch.nn.modules.module.register_module_forward_hook(lambda *args: seen.append("called"))
        yield
        handle.remove()

    found = read_settings()
    layer = torch.nn.Identity()
    with hook():
        with as_found(found):
            layer(torch.ones(1))
        assert seen == []
        layer(torch.ones(1))
        assert seen == ["called"]
    layer(torch.ones(1))
    assert seen == ["called"]


def test_casts_that_an_open_region_kept_are_dropped() -> None:
    weight = torch.ones(2, 2, requires_grad=True)
    with ending_here():
        region = torch.autocast("cpu", dtype=torch.bfloat16)
        region.__enter__()
        torch.mm(weight, weight)
    with torch.no_grad():
        weight.fill_(3.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.mm(weight, weight)[0, 0] == 18.0


def test_names_are_unique() -> None:
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)
    assert set(read_settings()) - set(read_settings(compiler=False)) == {"compiler"}
