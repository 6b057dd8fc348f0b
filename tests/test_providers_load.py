"""A provider with its faults: a fault that fails is told apart from the cell that it was to break."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import ModuleType
from typing import Any

import pytest

from harness.faults.fault import RAISED, UNMENDED, Fault, FaultError
from harness.faults.patching import patched
from harness.fp8 import ops
from harness.providers.load import loaded_provider
from harness.types import Spec


def other(*_: object) -> float:
    return 0.0


@contextmanager
def fine(provider: Any) -> Iterator[Any]:
    with patched(ops, "multiply", other):
        yield provider


@contextmanager
def leaves(provider: Any) -> Iterator[Any]:
    ops.multiply = other  # type: ignore[assignment]
    yield provider


@contextmanager
def raises(provider: Any) -> Iterator[Any]:
    raise ValueError("no such seam")
    yield provider


@contextmanager
def exits(provider: Any) -> Iterator[Any]:
    sys.exit("no such seam")
    yield provider


@contextmanager
def raises_late(provider: Any) -> Iterator[Any]:
    yield provider
    raise ValueError("can't mend")


@contextmanager
def hides(provider: Any) -> Iterator[Any]:
    with suppress(ZeroDivisionError):
        yield provider


@contextmanager
def patches_nothing(provider: Any) -> Iterator[Any]:
    with patched(ops, "no_such_name", other):
        yield provider


@contextmanager
def yields_nothing(provider: Any) -> Iterator[None]:
    yield


@contextmanager
def yields_five(provider: Any) -> Iterator[int]:
    with patched(ops, "multiply", other):
        yield 5


class Wrapper:
    """Hands on everything but its ``tap``."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "tap":
            raise AttributeError(name)
        return getattr(self._inner, name)


@contextmanager
def yields_a_part(provider: Any) -> Iterator[Any]:
    yield Wrapper(provider)


def plain(provider: Any) -> Any:
    return provider


def bare(provider: Any) -> Iterator[Any]:
    yield provider


@pytest.fixture
def provided(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Spec]:
    """The reference with faults of these ``apply``; what they leave is put back."""
    module = ModuleType("made_faults")
    module.__file__ = __file__
    monkeypatch.setitem(sys.modules, "made_faults", module)
    monkeypatch.setattr(ops, "multiply", ops.multiply)

    def make(*applies: Any) -> Spec:
        for index, apply in enumerate(applies):
            setattr(module, f"F{index}", Fault("made", "something", "state.unchanged", apply))
        return Spec("+".join(["reference", *(f"made_faults:F{index}" for index in range(len(applies)))]))

    return make


def test_a_fault_is_applied_and_mended(provided: Callable[..., Spec]) -> None:
    multiply = ops.multiply
    with loaded_provider(provided(fine, nullcontext)) as loaded:
        assert ops.multiply is not multiply
        assert loaded.faults == ("made_faults:F0", "made_faults:F1")
    assert ops.multiply is multiply


def test_a_fault_that_leaves_its_patch_is_told(provided: Callable[..., Spec]) -> None:
    with pytest.raises(FaultError, match=r"not mended when its apply was left: harness\.fp8\.ops\.multiply$") as caught:
        with loaded_provider(provided(leaves)):
            pass
    assert caught.value.check == UNMENDED


def test_so_it_is_when_the_cell_raised(provided: Callable[..., Spec]) -> None:
    with pytest.raises(FaultError, match="not mended") as caught, loaded_provider(provided(leaves)):
        raise ZeroDivisionError
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_what_the_cell_raises_is_the_cells(provided: Callable[..., Spec]) -> None:
    for apply in (fine, hides):
        with pytest.raises(ZeroDivisionError), loaded_provider(provided(apply)):
            raise ZeroDivisionError


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (raises, "apply raised ValueError: no such seam at "),
        (exits, "apply raised SystemExit: no such seam at "),
        (raises_late, "apply raised ValueError when it was to mend: can't mend at "),
        (patches_nothing, "apply raised AttributeError: module 'harness.fp8.ops' has no attribute 'no_such_name' at "),
        (plain, "apply gives back an object of type ReferenceProvider, no context manager: decorate a generator with "),
        (
            bare,
            "apply gives back an object of type generator, no context manager: decorate a generator with contextlib",
        ),
        (lambda provider: None, "apply gives back nothing, no context manager: "),
        (yields_nothing, "apply yields nothing: the provider is needed"),
        (
            yields_five,
            "apply yields an object of type int, no provider: it has no autocast, recipe, linear and 10 more",
        ),
        (yields_a_part, "apply yields an object of type Wrapper, no provider: it has no tap at "),
    ],
)
def test_a_fault_that_raises_is_told_with_its_own_line(provided: Callable[..., Spec], apply: Any, message: str) -> None:
    with pytest.raises(FaultError) as caught, loaded_provider(provided(apply)):
        pass
    assert str(caught.value).startswith(f"fault made_faults:F0: {message}")
    assert caught.value.check == RAISED
    assert ops.multiply is not other
    # The line is of the file that holds the fault, not of the helper that it calls or of the harness.
    assert caught.value.site.startswith(f"{__file__}:")
