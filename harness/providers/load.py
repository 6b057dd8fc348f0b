"""From a provider's spec (``reference+leaky_exit(emulate=false)``) to a live provider with its faults applied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from harness.faults import path_of
from harness.faults.fault import Fault
from harness.providers import PROVIDERS
from harness.providers.protocol import LoadedProvider, Provider
from harness.registry import LoadError, load
from harness.types import Spec


def split_faults(name: str) -> tuple[str, tuple[str, ...]]:
    """``reference+a+b`` as ``("reference", ("a", "b"))``."""
    base, *faults = name.split("+")
    return base, tuple(faults)


def load_fault(name: str) -> Fault:
    """The fault that is registered as ``name``, or stands at the import path ``name``.

    Raises:
        LoadError: its module can't be imported, or there is something else.
        KeyError: an unregistered name.
    """
    path = path_of(name)
    if path is None:
        raise KeyError(name)
    fault = load(path)
    if not isinstance(fault, Fault):
        raise LoadError(f"{path} is no fault but {type(fault).__name__}: harness.faults.fault.Fault is needed")
    return fault


@contextmanager
def loaded_provider(spec: Spec) -> Iterator[LoadedProvider]:
    """Yield the provider with every fault of its name applied, in order; all of them are undone on exit.

    Torch's settings are then as they were once the library was there: what it changed while it was imported stays, what
    it left changed later must not meet the next cell.

    Raises:
        LoadError: the provider's or a fault's module can't be imported, or holds no fault.
        KeyError: an unregistered name (the plan refuses those with a position).
    """
    base, fault_names = split_faults(spec.name)
    provider: Provider = load(PROVIDERS[base])(**spec.as_dict())
    from harness.observe.torch_settings import ending_here  # imports torch; planning imports this module without

    with ExitStack() as stack:
        stack.enter_context(ending_here())
        for name in fault_names:
            fault = load_fault(name)
            provider = stack.enter_context(fault.apply(provider))
        yield LoadedProvider(provider, spec, fault_names)
