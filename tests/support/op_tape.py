"""A CUDA graph on the CPU: what a captured program does to memory is recorded once and done again, without its Python.

Operators are recorded as they reach the dispatcher, on the very tensors they were given. A replay runs them on the same
tensors, which hold whatever was written into them since, and writes results where the first ones are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.fp8 import kernels, ops, weight_cache
from harness.observe.replay import LAUNCHES, Tensors

# The reference's operators are implemented in Python, which a graph doesn't hold: what they call is recorded instead.
PYTHON: Mapping[str, Callable[..., Any]] = {
    "fp8ref::linear": lambda *given: ops._linear(*given),
    "fp8ref::dgrad": lambda *given: ops._dgrad(*given),
    "fp8ref::wgrad": lambda *given: ops._wgrad(*given),
    "fp8ref::refresh_weight": lambda *given: weight_cache._refresh_weight(*given),
    "fp8ref::linear_cached": lambda *given: weight_cache._linear_cached(*given),
    "fp8ref::dgrad_cached": lambda *given: weight_cache._dgrad_cached(*given),
    "fp8ref::product_tensorwise": kernels.tensorwise,
    "fp8ref::product_rowwise": kernels.rowwise,
    "fp8ref::product_block": kernels.block,
    "fp8ref::product_mxfp8": kernels.mxfp8,
    "fp8ref::product_nvfp4": kernels.nvfp4,
}


class OpTape(TorchDispatchMode):
    """Records while it is entered; :meth:`replay` does it again."""

    recording = False  # of any tape: what torch.cuda.is_current_stream_capturing says of a stream

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], Mapping[str, Any], Any]] = []

    def __enter__(self) -> OpTape:
        OpTape.recording = True
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        OpTape.recording = False
        super().__exit__(*exc)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        python = PYTHON.get(func._schema.name)
        if python is not None:
            with self:
                return python(*args, **kwargs)
        result = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, result))
        return result

    def replay(self) -> None:
        """Every recorded operator again, results into the memory of the first ones."""
        with torch.no_grad(), torch.profiler.record_function(LAUNCHES[0]):
            for func, args, kwargs, result in self.calls:
                again = func(*args, **kwargs)
                own = {tensor.untyped_storage().data_ptr() for tensor in _tensors((args, kwargs))}
                for old, new in zip(_tensors(result), _tensors(again), strict=True):
                    if old.untyped_storage().data_ptr() not in own:  # a view, or written in place
                        old.copy_(new)


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))


def capture(step: Callable[..., Tensors], x: torch.Tensor, grad: torch.Tensor) -> Callable[..., Tensors]:
    """``cases.cudagraph.capture`` with a tape for the graph."""
    static_x, static_grad = x.detach().clone().requires_grad_(True), grad.clone()
    step(static_x, static_grad)
    tape = OpTape()
    with tape:
        results = step(static_x, static_grad)

    def replay(x: torch.Tensor, grad: torch.Tensor) -> Tensors:
        with torch.no_grad():
            static_x.copy_(x)
            static_grad.copy_(grad)
        tape.replay()
        return results

    return replay
