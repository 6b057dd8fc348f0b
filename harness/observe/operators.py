"""What a library's operators promise while traced (their fake implementations), beside what they return when they run.

``torch.compile`` lays out memory, and generates code, by the promise. A result of other strides is read as garbage, or
refused by an assertion, but only by a backend that relies on them: eager code and ``aot_eager`` take what comes, and a
parameter's ``.grad`` is copied to the parameter's own strides by autograd.

The operators of one eager run are noted as they return, tensors in words alone; the promises are asked for afterwards,
on tensors without data. Torch's own operators are not looked at, nor are those that have no fake implementation or
can't tell their shapes without data: such a program doesn't compile, which other checks see. Nor is what other threads
of the program call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from harness import torch_compat
from harness.observe.types import OperatorSeen

# Namespaces of torch's own operators.
TORCHS = frozenset(
    (
        *("aten", "prim", "prims", "debugprims", "rngprims", "higher_order", "inductor", "profiler", "streams"),
        *("mkldnn", "mkldnn_prims", "onednn", "mkl", "quantized", "_quantized", "quantized_decomposed"),
        *("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "dist_inductor", "symm_mem"),
    )
)
MOST = 64  # different calls of a run


@dataclass(frozen=True)
class _Described:
    """A tensor without its data."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.shape} {dtype}, strides {self._told_strides()}, on {self.device.type}"

    def _told_strides(self) -> tuple[int, ...]:
        """Those that decide where an element lies: the stride of a dimension of one element, or of a tensor of none,
        may be any number."""
        if 0 in self.shape:
            return (1,) * len(self.shape)
        return tuple(stride if size > 1 else 1 for size, stride in zip(self.shape, self.strides, strict=True))


@dataclass
class OperatorWatch:
    """Watches a run (:meth:`watching`), then compares (:meth:`seen`). About 10 ms a cell, 1 % of its time."""

    _calls: dict[str, tuple[Any, tuple[Any, Any], tuple[Any, ...]]] = field(default_factory=dict)

    def watching(self) -> AbstractContextManager[None]:
        """The body's operators are noted."""
        return torch_compat.watching_operators(self._note)

    def seen(self) -> tuple[OperatorSeen, ...]:
        """Every different call, with the operator's promise for it."""
        return tuple(item for call in self._calls.values() for item in _promised(*call))

    def _note(self, operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        name = torch_compat.operator_name(operator)
        if not name or name.partition("::")[0] in TORCHS or len(self._calls) >= MOST:
            return
        given = torch_compat.with_leaves(_described, (args, dict(kwargs)))
        returned = tuple(torch_compat.leaves_of(torch_compat.with_leaves(_described, result)))
        if not any(isinstance(leaf, torch.Tensor) for leaf in torch_compat.leaves_of((given, returned))):
            self._calls.setdefault(f"{name}{given!r}{returned!r}", (operator, given, returned))


def _described(leaf: Any) -> Any:
    """A plain tensor in words; anything else, and a tensor of another kind, as it is."""
    if type(leaf) not in (torch.Tensor, torch.nn.Parameter) or leaf.layout is not torch.strided:
        return leaf
    return _Described(tuple(leaf.shape), tuple(leaf.stride()), leaf.dtype, leaf.device)


def _promised(operator: Any, given: tuple[Any, Any], returned: tuple[Any, ...]) -> Iterator[OperatorSeen]:
    """One item for each tensor that the call returned; none where the operator makes no promise."""
    promise = _without_data(operator, *given)
    if len(promise) != len(returned):
        return
    for told, seen in zip(promise, returned, strict=True):
        if isinstance(told, _Described) and isinstance(seen, _Described):
            yield OperatorSeen(torch_compat.operator_name(operator), str(told), str(seen))


def _without_data(operator: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """What the call returns on tensors without data, in words; nothing where it can't be made on them."""
    try:
        with torch_compat.fake_tensor_mode(), torch.no_grad():
            args, kwargs = torch_compat.with_leaves(_empty, (args, kwargs))
            result = operator(*args, **kwargs)
    except Exception:  # whatever a fake implementation raises: compiling the program raises it too, and is judged
        return ()
    return tuple(map(_described_fake, torch_compat.leaves_of(result)))


def _empty(leaf: Any) -> Any:
    if not isinstance(leaf, _Described):
        return leaf
    return torch.empty_strided(leaf.shape, leaf.strides, dtype=leaf.dtype, device=leaf.device)


def _described_fake(leaf: Any) -> Any:
    """A tensor in words where all its sizes are known."""
    if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
        return leaf
    sizes = (*leaf.shape, *leaf.stride())
    known = all(type(size) is int for size in sizes)
    return _Described(tuple(leaf.shape), tuple(leaf.stride()), leaf.dtype, leaf.device) if known else leaf
