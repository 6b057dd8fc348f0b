"""The amp case: who can run it."""

from __future__ import annotations

import pytest

from cases.amp import unavailable
from harness.providers.reference import ReferenceProvider
from harness.types import Axes, Spec


@pytest.mark.parametrize(("dtype", "reason"), [("bfloat16", ""), ("float16", ""), ("float32", "no float32")])
def test_torchs_autocast_has_half_precision_alone(dtype: str, reason: str) -> None:
    axes = Axes("amp", Spec("reference"), Spec("float8_current_scaling"), variant="around", dtype=dtype)
    seen = unavailable(ReferenceProvider(), axes, "cpu")
    assert bool(seen) == bool(reason)
    assert reason in seen
