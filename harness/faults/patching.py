"""How faults change a library and mend it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.providers.protocol import Provider

_ABSENT = object()


@contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[Any]:
    """Set ``owner.name`` inside, put back exactly what was there (a class attribute keeps its descriptor)."""
    before = vars(owner).get(name, _ABSENT) if isinstance(owner, type) else getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield getattr(owner, name)
    finally:
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def autocast_fault(autocast: Any) -> Callable[[Provider], Any]:
    """An ``apply`` for a fault with another region in the place of the provider's; a reset mends the state."""

    @contextmanager
    def apply(provider: Provider) -> Iterator[Provider]:
        with patched(provider, "autocast", autocast):
            yield provider
        provider.reset()

    return apply
