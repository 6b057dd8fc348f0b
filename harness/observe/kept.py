"""Memory that calls leave in use, call after call: what a library keeps for ever, seen without any hook in it.

Two independent looks, because each is blind somewhere:

- *Tensors*: which memory came into being during a stretch of calls and is still in use at the end of all of them. It is
  found by way of Python's tensors, on every device, and followed by a weak handle on the memory itself. Blind for a
  tensor that only C++ ever held.
- *Allocated bytes* on a GPU, as its caching allocator counts them: exact, whoever holds them. The CPU has no such
  count.

Open files and threads are counted beside them (:mod:`harness.observe.handles`).

Not looked at: Python objects without tensors. Memory that only waits for the garbage collector is not in use.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from harness import torch_compat
from harness.observe.handles import files_grew, handles, threads_grew
from harness.observe.types import Handles, Kept, Left, StepTensors
from harness.torch_compat import Memory

# A stretch of calls. Three of them and one call more are ten: that last one replaces what the ninth left for a moment.
STRETCH = 3
STRETCHES = 3


def grew(kept: Kept) -> bool:
    """True when memory grows by either look, or files or threads pile up.

    No amount is allowed. What a library keeps once (a cached weight, a history, a pool) was there before the calls,
    since each repeats what an earlier one did; what is made late, or is replaced now and then, shows in the stretch of
    its last replacement alone. So something that is kept at least once in three calls is always seen, and memory that
    is bounded shows only where several parts of it are replaced in turn, each less than once in three calls.
    """
    return memory_grew(kept) or files_grew(kept.handles) or threads_grew(kept.handles)


def memory_grew(kept: Kept) -> bool:
    """True when memory grows by either look."""
    return tensors_pile_up(kept.left) or allocation_grew(kept.allocated)


def tensors_pile_up(left: Iterable[Left]) -> bool:
    """Whether every stretch left memory in use."""
    return {item.stretch for item in left} >= set(range(STRETCHES))


def allocation_grew(allocated: Sequence[int]) -> bool:
    """Whether the least number of bytes in use after a call rose from each stretch to the next, and the last number is
    above all of the first stretch. The least, because a program's steps may differ by turns."""
    if len(allocated) <= STRETCH * STRETCHES:
        return False
    stretches = [allocated[start : start + STRETCH] for start in range(0, STRETCH * STRETCHES, STRETCH)]
    least = [min(stretch) for stretch in stretches]
    return least[0] < least[1] < least[2] and allocated[-1] > max(stretches[0])


@dataclass
class KeptWatch:
    """Watches a row of calls: :meth:`start`, :meth:`after_call` for each, :meth:`seen`. Ten calls cost 1 to 2 ms.

    A young collection before each stretch leaves nothing in the collector's young generations, so that after it they
    hold what the stretch made, and nothing of the hundreds of thousands of objects of a process need be looked at.

    ``results`` is the live mapping in which the harness keeps what the calls gave. That is not counted, nor are the
    gradients of ``model``'s parameters, which one step leaves and another doesn't.
    """

    device: torch.device
    model: torch.nn.Module
    results: Mapping[int, StepTensors]
    _calls: int = 0
    _promotions: int = 0
    _allocated: list[int] = field(default_factory=list)
    _handles: list[Handles] = field(default_factory=list)
    _found: dict[int, tuple[Memory, Left]] = field(default_factory=dict)  # by the memory's number

    def start(self) -> None:
        """Everything that is there now is none of the calls' doing."""
        gc.collect(_YOUNG)
        self._handles.append(handles())
        self._promotions = _promotions()

    def after_call(self) -> None:
        """Look at what is there now, if a stretch ends with this call, and at the allocator's count."""
        self._calls += 1
        with torch_compat.without_torch_functions():
            if self._calls % STRETCH == 0 and self._calls <= STRETCH * STRETCHES:
                self._find(self._calls // STRETCH - 1)
                self.start()
            self._allocated += self._bytes_in_use()

    def seen(self) -> Kept:
        """What the calls left. All garbage is collected first where it looks as if memory grew: else nothing depends on
        it, and a full collection costs up to a tenth of a second."""
        with torch_compat.without_torch_functions():
            kept = self._kept()
            if not grew(kept):
                return kept
            gc.collect()
            self._allocated[-1:] = self._bytes_in_use()
            return self._kept()

    def _kept(self) -> Kept:
        ours = {memory.number for memory in self._ours()}
        left = [left for number, (memory, left) in self._found.items() if number not in ours and not memory.expired()]
        return Kept(self._calls, tuple(left), tuple(self._allocated), (*self._handles, handles()))

    def _ours(self, device_type: str = "") -> list[Memory]:
        """The memory of what isn't counted, on devices of this type or on all."""
        tensors = list(_made_anew(self.model, self.results.values()))
        here = [tensor for tensor in tensors if device_type in ("", tensor.device.type)]
        return [memory for memory in map(torch_compat.memory_of, here) if memory is not None]

    def _bytes_in_use(self) -> list[int]:
        """Bytes of the GPU in use, in a list of one; an empty one where nobody counts them."""
        if self.device.type != _GPU:
            return []
        count = _COUNTS.get(torch.cuda.get_allocator_backend())
        if count is None:
            return []
        allocated = int(torch.cuda.memory_stats_as_nested_dict(self.device)[count]["all"]["current"])
        return [allocated - sum({memory.number: memory.bytes for memory in self._ours(_GPU)}.values())]

    def _find(self, stretch: int) -> None:
        """Note the memory that this stretch made.

        Where older generations were collected meanwhile, tensors of the stretch may be among the old objects. Then all
        are looked at, and what is older than the calls is noted as this stretch's, and once: that hides nothing.
        """
        for tensor in _tensors(young=_promotions() == self._promotions):
            memory = torch_compat.memory_of(tensor)
            if memory is not None and memory.number not in self._found:
                self._found[memory.number] = (memory, Left(stretch, memory.bytes, _described(tensor)))


_YOUNG = 1  # generations up to this one are young
_OLD_FROM = 0 if sys.version_info >= (3, 14) else _YOUNG  # collecting this one may move objects out of the young ones

_GPU = "cuda"
# Allocator -> its count of bytes in use that has no rounding in it: the native one rounds by what blocks it finds free.
_COUNTS = {"native": "requested_bytes", "cudaMallocAsync": "allocated_bytes"}


def _promotions() -> int:
    """How often objects may have left the young generations."""
    return sum(stats["collections"] for stats in gc.get_stats()[_OLD_FROM:])


def _tensors(young: bool) -> list[torch.Tensor]:
    objects = [item for age in range(_YOUNG + 1) for item in gc.get_objects(age)] if young else gc.get_objects()
    # By type: an object's own word for its class may be any code's, and is slow.
    classes = {kind for kind in set(map(type, objects)) if issubclass(kind, torch.Tensor)}
    return [item for item in objects if type(item) in classes and not torch_compat.is_fake(item)]


def _described(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')} on {tensor.device.type}"


def _made_anew(model: torch.nn.Module, results: Iterable[StepTensors]) -> Iterator[torch.Tensor]:
    for result in results:
        yield from (result.output, *result.grads.values(), *result.weights.values())
        if result.returned is not None:
            yield result.returned
    yield from (parameter.grad for parameter in model.parameters() if parameter.grad is not None)
