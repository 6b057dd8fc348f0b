"""GPU leases: how many workers share a GPU, and which, over all runs of one user on this machine.

A lease is a lock (flock) on small files of one directory, so the kernel ends it with the processes that hold it,
however they went. Runs that start at the same time therefore share the GPUs, or wait for each other.

==================  ===========================================================================================
file                locked
==================  ===========================================================================================
``choosing``        exclusively, for the milliseconds in which a run looks for free slots and takes them
``KEY.gpu``         shared by whoever uses the GPU, exclusively by a cell that must be alone on it
``KEY.SLOT``        shared by the pytest that took the slot and the worker that it is for; free when both are gone
==================  ===========================================================================================

``KEY`` is the GPU's UUID, so that runs with different ``CUDA_VISIBLE_DEVICES`` mean the same hardware.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from harness.run.gpus import Gpu

# What one worker may need of a GPU. In nightly.yaml on an H200 a worker's allocator held 584 MiB at most (run.json,
# worker_gpu_peak_mib); the context with its loaded kernels, cuBLAS workspaces (32 MiB a handle and stream) and Triton's
# autotuning buffer (256 MiB) come on top. The rest is room for larger shapes and for a user's own program.
WORKER_GPU_MIB = 6 * 1024
DIRECTORY = "FP8_HARNESS_LEASE_DIR"
GATE = "gpu"
WAIT_SECONDS = 0.5  # between two looks for a free slot
SAY_SECONDS = 10.0  # between two messages of somebody who waits; shows the front that this process lives
# How long a cell that must be alone waits for other runs; then it goes on beside them, and says so.
ALONE_SECONDS = 600.0

T = TypeVar("T")
Say = Callable[[str], None]


@dataclass
class Lease:
    """A process's right to use ``gpu``; ``slot`` is None where the whole GPU is leased.

    ``paths`` are the locked files; without any the directory could not be used, and nothing keeps other runs away.
    """

    gpu: Gpu
    slot: int | None
    paths: tuple[str, ...] = ()
    descriptors: list[int] = field(default_factory=list, compare=False)

    @property
    def is_alone(self) -> bool:
        """True when no other run of this user can be on the GPU."""
        return self.slot is None and bool(self.paths)

    def release(self) -> None:
        """Give it back; a second time does nothing."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def as_text(self) -> str:
        """For the environment of the worker that it is for."""
        return json.dumps({"gpu": dataclasses.asdict(self.gpu), "slot": self.slot, "paths": self.paths})


def joined(text: str) -> Lease:
    """The lease of :meth:`Lease.as_text`, held by this process too: it ends when both are gone.

    Raises:
        OSError: the pytest that took it has gone already, and somebody else has it.
    """
    data = json.loads(text)
    lease = Lease(Gpu(**data["gpu"]), data["slot"], tuple(data["paths"]))
    for path in lease.paths:
        lease.descriptors.append(_locked(Path(path), fcntl.LOCK_SH | fcntl.LOCK_NB))
    return lease


def capacity(gpu: Gpu) -> int:
    """Workers that fit into the memory of ``gpu``; one where it is unknown."""
    return max(1, (gpu.total_mib or 0) // WORKER_GPU_MIB)


def slots_for(gpus: Sequence[Gpu], wanted: int) -> Mapping[int, int]:
    """Slots by a GPU's index: what fits, and where ``wanted`` is more than fits anywhere, as many as were asked for."""
    fitting = {gpu.index: capacity(gpu) for gpu in gpus}
    asked = spread(wanted, fitting, {})
    return {index: max(count, asked.count(index)) for index, count in fitting.items()}


def spread(count: int, slots: Mapping[int, int], used: Mapping[int, int]) -> list[int]:
    """For each of ``count`` workers the index of its GPU: the one that is least full, the first among equals. A full
    one is taken when all are.

    Args:
        slots: by index, how many workers a GPU is meant for.
        used: by index, how many it has already.
    """
    load = {index: used.get(index, 0) for index in slots}
    chosen: list[int] = []
    for _ in range(count):
        room = [index for index in slots if load[index] < slots[index]] or list(slots)
        index = min(room, key=lambda index: (load[index] / slots[index], index))
        load[index] += 1
        chosen.append(index)
    return chosen


@dataclass
class LeaseBook:
    """The leases of one user on this machine. ``owner`` is what messages of other runs call this one."""

    directory: Path
    owner: str = ""

    def claim(self, gpus: Sequence[Gpu], wanted: int) -> list[Lease] | None:
        """``wanted`` slots, spread evenly, or nothing: who waits holds nothing that another run could wait for.

        Raises:
            OSError: the directory can't be used.
        """
        slots = slots_for(gpus, wanted)
        with self._choosing(), self._free_slots(gpus, slots) as free:
            if sum(map(len, free.values())) < wanted:
                return None
            used = {index: slots[index] - len(free[index]) for index in slots}
            taken = [free[index].pop(0) for index in spread(wanted, slots, used)]
            for lease in taken:
                _, slot = lease.descriptors
                self._sign(slot)
                fcntl.flock(slot, fcntl.LOCK_SH)  # so that the worker can join
            return taken

    def claim_whole(self, gpus: Sequence[Gpu]) -> Lease | None:
        """A GPU on which nobody is, or None. Raises OSError as :meth:`claim` does."""
        with self._choosing():
            for gpu in gpus:
                path = self._path(gpu, GATE)
                descriptor = _try_lock(path, fcntl.LOCK_EX)
                if descriptor is not None:
                    self._sign(descriptor)
                    return Lease(gpu, None, (str(path),), [descriptor])
        return None

    def free(self, gpus: Sequence[Gpu]) -> Mapping[int, int]:
        """Free slots by a GPU's index. Raises OSError as :meth:`claim` does."""
        with self._choosing(), self._free_slots(gpus, slots_for(gpus, 0)) as free:
            return {index: len(leases) for index, leases in free.items()}

    def holders(self, gpus: Sequence[Gpu]) -> list[str]:
        """Who holds something of ``gpus``, each once, as they signed. Raises OSError as :meth:`claim` does."""
        found: dict[str, None] = {}
        with self._choosing():
            for path in (path for gpu in gpus for path in sorted(self.directory.glob(f"{gpu.key}.*"))):
                # The gate is signed by who has the whole GPU only.
                descriptor = _try_lock(path, fcntl.LOCK_SH if path.suffix == f".{GATE}" else fcntl.LOCK_EX)
                if descriptor is not None:
                    os.close(descriptor)
                else:
                    found[path.read_text(encoding="utf-8", errors="replace").strip()] = None
        return list(found)

    @contextlib.contextmanager
    def _free_slots(self, gpus: Sequence[Gpu], slots: Mapping[int, int]) -> Iterator[dict[int, list[Lease]]]:
        """Leases of every free slot by a GPU's index. Those that are still there at the end are given back."""
        free = {gpu.index: list(self._slots_of(gpu, slots[gpu.index])) for gpu in gpus}
        try:
            yield free
        finally:
            for lease in (lease for leases in free.values() for lease in leases):
                lease.release()

    def _slots_of(self, gpu: Gpu, slots: int) -> Iterator[Lease]:
        gate = self._path(gpu, GATE)
        for slot in range(slots):
            path = self._path(gpu, str(slot))
            shared = _try_lock(gate, fcntl.LOCK_SH)
            if shared is None:  # somebody is alone there
                return
            own = _try_lock(path, fcntl.LOCK_EX)
            if own is None:
                os.close(shared)
            else:
                yield Lease(gpu, slot, (str(gate), str(path)), [shared, own])

    def _sign(self, descriptor: int) -> None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} of run {self.owner}\n".encode(), 0)

    def _path(self, gpu: Gpu, what: str) -> Path:
        return self.directory / f"{gpu.key}.{what}"

    @contextlib.contextmanager
    def _choosing(self) -> Iterator[None]:
        descriptor = _locked(self.directory / "choosing", fcntl.LOCK_EX)
        try:
            yield
        finally:
            os.close(descriptor)


def lease_workers(env: Mapping[str, str], gpus: Sequence[Gpu], wanted: int, owner: str, say: Say) -> list[Lease]:
    """``wanted`` leases, one a worker, as soon as there are so many; until then ``say`` hears why not.

    Where the lock files can't be used, ``say`` hears that too, and the leases keep nobody away.
    """
    try:
        book = LeaseBook(directory(env), owner)
        leases = _waited(lambda: book.claim(gpus, wanted), lambda: _why(book, gpus, f"{wanted} worker(s)"), say)
    except OSError as error:
        say(f"no GPU leases, so that other runs are not kept away: {error}")
        by_index = {gpu.index: gpu for gpu in gpus}
        return [Lease(by_index[index], None) for index in spread(wanted, slots_for(gpus, wanted), {})]
    return leases or []


def lease_alone(
    env: Mapping[str, str], gpus: Sequence[Gpu], owner: str, say: Say, seconds: float = ALONE_SECONDS
) -> Lease:
    """A whole GPU, as soon as there is one; after ``seconds`` a slot beside other runs (:attr:`Lease.is_alone`)."""
    try:
        book = LeaseBook(directory(env), owner)
        why = lambda: _why(book, gpus, "a cell that must be alone")  # noqa: E731
        whole = _waited(lambda: book.claim_whole(gpus), why, say, seconds)
    except OSError:
        whole = None
    return whole or lease_workers(env, gpus, 1, owner, say)[0]


def _waited(claim: Callable[[], T | None], why: Callable[[], str], say: Say, seconds: float | None = None) -> T | None:
    """What ``claim`` gives once it gives anything; None after ``seconds``."""
    began = time.monotonic()
    spoke = -SAY_SECONDS
    while True:
        found = claim()
        waited = time.monotonic() - began
        if found is not None or (seconds is not None and waited >= seconds):
            return found
        if waited - spoke >= SAY_SECONDS and waited > 0:
            spoke = waited
            say(why())
        time.sleep(WAIT_SECONDS)


def _why(book: LeaseBook, gpus: Sequence[Gpu], what: str) -> str:
    free = book.free(gpus)
    room = ", ".join(f"{free[gpu.index]} of {capacity(gpu)} slots free on {gpu}" for gpu in gpus)
    return f"waiting for a GPU for {what}: {room}; held by {'; '.join(book.holders(gpus)) or 'nobody any more'}"


def directory(env: Mapping[str, str]) -> Path:
    """Where the lock files are, made if missing: ``FP8_HARNESS_LEASE_DIR``, else one of this user below /tmp.

    Not XDG_RUNTIME_DIR and not TMPDIR: a nightly run started by cron has other ones, or none, and must meet the leases
    of a login shell.

    Raises:
        OSError: it can't be made, or it is not this user's own.
    """
    named = env.get(DIRECTORY)
    path = Path(named) if named else Path("/tmp") / f"fp8-harness-{os.getuid()}"
    with contextlib.suppress(FileExistsError):  # a file: told below
        path.mkdir(mode=0o700, parents=bool(named), exist_ok=True)
    found = path.stat() if named else path.lstat()
    if not stat.S_ISDIR(found.st_mode) or (not named and found.st_uid != os.getuid()):
        raise NotADirectoryError(f"{path}: is not a directory of this user's; {DIRECTORY} names another")
    return path


def _locked(path: Path, how: int) -> int:
    """An open descriptor of ``path``, made if missing, once it is locked."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _try_lock(path: Path, how: int) -> int | None:
    """As :func:`_locked`, but None at once when somebody else's lock is in the way."""
    try:
        return _locked(path, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
