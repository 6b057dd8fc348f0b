"""From a provider's spec (``reference+leaky_exit(emulate=false)``) to a live provider with its faults applied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from harness.faults import FAULTS
from harness.faults.fault import Fault
from harness.providers import PROVIDERS
from harness.providers.protocol import LoadedProvider, Provider
from harness.registry import load
from harness.types import Spec


def split_faults(name: str) -> tuple[str, tuple[str, ...]]:
    """``reference+a+b`` as ``("reference", ("a", "b"))``."""
    base, *faults = name.split("+")
    return base, tuple(faults)


@contextmanager
def loaded_provider(spec: Spec) -> Iterator[LoadedProvider]:
    """Yield the provider with every fault of its name applied, in order; all of them are undone on exit.

    Raises:
        LoadError: the provider's or a fault's module can't be imported.
        KeyError: an unregistered name (the plan refuses those with a position).
    """
    base, fault_names = split_faults(spec.name)
    provider: Provider = load(PROVIDERS[base])(**spec.as_dict())
    with ExitStack() as stack:
        for name in fault_names:
            fault: Fault = load(FAULTS[name])
            provider = stack.enter_context(fault.apply(provider))
        yield LoadedProvider(provider, spec, fault_names)
