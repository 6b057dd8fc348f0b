"""Out of memory and a failed machine are told from the product's own errors."""

from __future__ import annotations

import pytest

from harness.judge.outcome import poisons_worker, verdict_of_error
from harness.types import Verdict
from tests.support.judging import error


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 MiB", Verdict.OOM),
        ("MemoryError", "", Verdict.OOM),
        ("RuntimeError", "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes", Verdict.OOM),
        ("RuntimeError", "CUDA error: GPU is lost", Verdict.INFRA),
        ("OSError", "[Errno 28] No space left on device", Verdict.INFRA),
        ("RuntimeError", "CUDA error: an illegal memory access was encountered", None),
        ("ValueError", "in_features is 17, needs a multiple of 16", None),
    ],
)
def test_verdict_of_error(kind: str, message: str, expected: Verdict | None) -> None:
    assert verdict_of_error(error("run", kind, message)) is expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("CUDA error: an illegal memory access was encountered", True),
        ("CUDA error: device-side assert triggered", True),
        ("CUDA out of memory", False),
        ("shapes differ", False),
    ],
)
def test_poisons_worker(message: str, expected: bool) -> None:
    assert poisons_worker(error("run", "RuntimeError", message)) is expected
