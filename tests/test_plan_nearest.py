"""What a wrong name was meant to be."""

from __future__ import annotations

import time

import pytest

from harness.plan import nearest
from harness.plan.nearest import nearest_ids, quoted, unknown
from harness.types import ARCHES, DTYPES, RECIPES


@pytest.mark.parametrize(
    ("word", "names", "expected"),
    [
        ("float8_curent_scaling", RECIPES, "float8_current_scaling"),
        ("DelayedScaling", RECIPES, "delayed_scaling"),
        ("MXFP8BlockScaling", RECIPES, "mxfp8_block_scaling"),
        ("mxfp8", RECIPES, "mxfp8_block_scaling"),
        ("float8", RECIPES, None),  # in three of them: no guess
        ("", RECIPES, None),
        ("!!", RECIPES, None),
        ("SM_90", ARCHES, "sm90"),
        ("hopper", ARCHES, None),
        ("bf16", DTYPES, "bfloat16"),
        ("x", (), None),
    ],
)
def test_nearest(word: str, names: tuple[str, ...], expected: str | None) -> None:
    assert nearest(word, names) == expected


def test_unknown_lists_all_when_none_is_near() -> None:
    assert unknown("backend", "xla", ("eager", "inductor")) == ("unknown backend 'xla': one of eager, inductor", None)
    assert unknown("backend", "eagr", ("eager", "inductor")) == ("unknown backend 'eagr'", "eager")
    assert unknown("fault", "x", ()) == ("unknown fault 'x'", None)


def test_quoted_is_one_short_line() -> None:
    assert quoted("a\nb") == "'a\\nb'"
    assert len(quoted("x" * 1000)) == 60


def test_nearest_ids_prefers_shared_settings_and_is_quick() -> None:
    ids = [f"toy_linear[provider=reference,recipe=r{i % 50},seed={i}]" for i in range(20_000)]
    start = time.perf_counter()
    assert nearest_ids("toy_liner[provider=reference,recipe=r7,seed=57]", ids)[0] == ids[57]
    assert time.perf_counter() - start < 2
