"""What the canary's facts stand on: a region of their own, and short words for what torch.compile did."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.observe.census import CensusObserver, reset_compiler
from harness.observe.types import Census
from harness.providers.protocol import Provider
from harness.types import Spec

ROWS = 128
CURRENT, BLOCK = Spec("float8_current_scaling"), Spec("float8_block_scaling")


@dataclass
class State:
    """State as an autocast keeps it: a singleton that regions write and modules read."""

    enabled: bool = False
    depth: int = 0
    recipe: str = ""
    first: bool = False
    arguments: dict[str, str] = field(default_factory=dict)

    def reset(self) -> None:
        """The state after import, in place."""
        self.enabled, self.depth, self.recipe, self.first = False, 0, "", False
        self.arguments.clear()


class Holder:
    """Holds the singleton where it can be swapped."""

    state = State()
    written = 0  # a class attribute that compiled code writes


@contextlib.contextmanager
def region(recipe: str) -> Iterator[None]:
    """An autocast region in the shape of Transformer Engine's: a generator over the singleton's fields."""
    state = Holder.state
    outer = state.enabled, state.depth, state.recipe, state.first
    state.first = state.first if state.depth else True
    state.enabled, state.depth, state.recipe = True, state.depth + 1, recipe
    try:
        yield
    finally:
        state.enabled, state.depth, state.recipe, state.first = outer


class Region:
    """A region as a class."""

    def __enter__(self) -> None:
        Holder.state.enabled = True

    def __exit__(self, *error: object) -> None:
        Holder.state.enabled = False


@dataclass
class Ground:
    """What a fact may use. ``layers``: two of the provider's linears, 128 -> 256 -> 128."""

    provider: Provider
    device: torch.device
    layers: torch.nn.ModuleList

    def fp8(self, x: torch.Tensor) -> torch.Tensor:
        """Both layers."""
        return self.layers[1](self.layers[0](x))  # type: ignore[no-any-return]

    def batch(self, *, grad: bool = False) -> torch.Tensor:
        """One input of the layers, the same values each time."""
        values = torch.linspace(-1, 1, ROWS * ROWS, device=self.device).reshape(ROWS, ROWS)
        return values.to(torch.bfloat16).requires_grad_(grad)

    def autocast(self, spec: Spec = CURRENT) -> contextlib.AbstractContextManager[Any]:
        """A region of the provider with a new recipe object."""
        return self.provider.autocast(enabled=True, recipe=self.provider.recipe(spec))


def observed(
    fn: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    *,
    provider: Provider | None = None,
    backend: str = "eager",
    fullgraph: bool = False,
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    dynamic: bool | None = None,
) -> Census:
    """The census of these calls of ``fn``, compiled from nothing; the provider's tap is on where there is one."""
    reset_compiler()
    tap = provider.tap() if provider else contextlib.nullcontext([])
    with CensusObserver(provider.fp8_ops if provider else frozenset()) as observer, tap as records:
        compiled = torch.compile(fn, backend=observer.wrap_backend(backend), fullgraph=fullgraph, dynamic=dynamic)
        with around():
            for arguments in calls:
                observer.call(compiled, *arguments, records=records)
    return observer.census()


def with_own_code(manager: Any) -> Any:
    """A copy of a contextlib manager whose generator has a code object of its own.

    Dynamo remembers for the life of the process which code it gave up on: a count would depend on what ran before.
    """
    inner = manager.__wrapped__
    code = inner.__code__.replace()
    copied = types.FunctionType(code, inner.__globals__, inner.__name__, inner.__defaults__, inner.__closure__)
    copied.__kwdefaults__ = inner.__kwdefaults__
    return contextlib.contextmanager(copied)


def signals(census: Census) -> str:
    """Every signal of the census but those of FP8 calls."""
    events = sum(item.events for item in census.breaks)
    return (
        f"counter {census.counter_breaks}, graphs {census.graphs}, trace events {events}, "
        f"eager frames {census.eager_frames}"
    )


def raised(call: Callable[[], Any], text: str = "") -> str:
    """How a call ended: ``returned``, or the exception's class; whether ``text`` is in ``str`` of it."""
    try:
        call()
    except Exception as error:
        if not text:
            return type(error).__name__
        return f"{type(error).__name__} {'with' if text in str(error) else 'without'} the text"
    return "returned"


def both_modes(fn: Callable[..., Any], *arguments: Any, text: str = "", backend: str = "eager", calls: int = 2) -> str:
    """How calls of ``fn`` end without fullgraph and with it; the last of several calls speaks."""
    ends = []
    for fullgraph in (False, True):
        reset_compiler()
        compiled = torch.compile(fn, backend=backend, fullgraph=fullgraph)
        ends.append([raised(lambda compiled=compiled: compiled(*arguments), text) for _ in range(calls)][-1])  # type: ignore[misc]
    return f"off: {ends[0]}; on: {ends[1]}"


class Refused(RuntimeError):
    """What the facts raise."""


TEXT = "canary refuses"
