"""Evidence that FP8 happened: one profiled step, and the recipes that each product was given."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from harness import torch_compat
from harness.providers.protocol import TapRecord

_NOISE = b"USDT:"
_STDERR = 2


def profile_step(step: Callable[[], object], *, all_threads: bool = False) -> torch.profiler.profile:
    """Run ``step`` once under the profiler, operand shapes and dtypes recorded, CPU and (where there is one) CUDA.

    ``all_threads``: also what threads call that ``step`` starts; without it they are not seen.

    Raises:
        Exception: whatever ``step`` raises; the profiler is stopped first.
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    config = torch_compat.profiler_of_all_threads() if all_threads else None
    profile = torch.profiler.profile(activities=activities, record_shapes=True, experimental_config=config)
    with _without_profiler_lines():
        profile.start()
    try:
        step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    finally:
        with _without_profiler_lines():
            profile.stop()
    return profile


def recipes_seen(records: Sequence[TapRecord]) -> Mapping[str, tuple[str, ...]]:
    """Labels of the recipes that each FP8 product was given, in order, by ``phase.product`` (``backward.dgrad``)."""
    seen: dict[str, tuple[str, ...]] = {}
    for record in records:
        key = f"{record.phase}.{record.product}"
        seen[key] = (*seen.get(key, ()), record.recipe)
    return seen


@contextmanager
def _without_profiler_lines() -> Iterator[None]:
    """Drop the ``USDT:...profiler_start`` lines that libkineto of torch 2.13 and 2.14 writes to file descriptor 2.

    KINETO_LOG_LEVEL would do it, but libkineto reads it when it is loaded, and it is the user's to set. Everything else
    that was written meanwhile is passed on. The redirection lasts only for the profiler's own start and stop.
    """
    try:
        sys.stderr.flush()
        real = os.dup(_STDERR)
    except (OSError, ValueError, AttributeError):  # closed or replaced: nothing to keep quiet
        yield
        return
    with tempfile.TemporaryFile() as caught:
        os.dup2(caught.fileno(), _STDERR)
        try:
            yield
        finally:
            os.dup2(real, _STDERR)
            os.close(real)
            caught.seek(0)
            kept = b"".join(line for line in caught if not line.startswith(_NOISE))
            if kept:
                os.write(_STDERR, kept)
