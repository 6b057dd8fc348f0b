"""harness.detection.margins_table: near ones are work to do, whichever side of the bound they are on."""

from __future__ import annotations

import math

import pytest

from harness.detection.margins_measure import EXACT, Distance
from harness.detection.margins_table import section, sections, times, work, wrong
from harness.faults import FAULTS
from tests.support.kills import distance, journal, twin

REST = tuple((name, "elsewhere") for name in FAULTS if name not in ("dgrad_doubled", "round_toward_zero"))


@pytest.mark.parametrize(
    "one",
    [
        distance(),
        distance(ratio=2.0),
        distance(ratio=math.inf),
        distance(kind=EXACT, ratio=None, differing=1),
        distance(unavailable="no library", kind=""),
        twin(),
        twin(0.5),
        twin(None),
        twin(0.0),
    ],
)
def test_what_is_far_enough(one: Distance) -> None:
    assert wrong(one) == ""


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (distance(ratio=1.999), "only 1.9 of the bound of `numerics.program` at seed 0, normal data: eager, output"),
        (distance(ratio=math.nan), "only"),
        (distance(kind="", ratio=0.7), "`numerics.program` is green at seed 0, normal data, at 0.70 of its bound"),
        (distance(kind="", ratio=None), "`numerics.program` is green"),
        (distance(error="ValueError: x"), "ValueError: x"),
        (twin(0.501), "clean twin at 0.51 of a bound"),
        (twin(math.inf), "clean twin at inf of a bound"),
        (twin(findings=("numerics.eager: x",)), "clean twin is red at seed 0, normal data: numerics.eager: x"),
    ],
)
def test_what_is_near_or_wrong_is_work_to_do(one: Distance, said: str) -> None:
    assert said in wrong(one)
    (line,) = work([journal(one, skipped=(*REST, ("round_toward_zero", "elsewhere")))])
    assert line.startswith("`dgrad_doubled`: ")


def test_times_are_rounded_down() -> None:
    assert [times(x) for x in (1.999, 2.0, 19.96, 198.27, 0.0, 3.4e7, math.inf)] == [
        "1.9",
        "2.0",
        "19",
        "198",
        "0",
        "3e+07",
        "inf",
    ]


def test_the_section_has_a_line_for_each_fault_and_each_case() -> None:
    records = [
        distance(ratio=50.0),
        distance(ratio=1.5, seed=1, data="positive"),
        distance(kind=EXACT, ratio=None, differing=3, seed=2),
        distance("round_toward_zero", "numerics.codes", kind=EXACT, ratio=None, differing=700, count=32768),
        distance("round_toward_zero", "numerics.codes", kind=EXACT, ratio=None, differing=9, count=32768, seed=1),
        twin(0.3),
        twin(0.1, seed=1),
        twin(None, case="unsupported_recipe", seed=2),
    ]
    text = section([journal(*records, skipped=REST)])
    assert (
        "| `dgrad_doubled` | `numerics.program` | 3, 1 exact | **1.5** | 50 | seed 1, positive: eager, output |" in text
    )
    assert "| `round_toward_zero` | `numerics.codes` | 2 | 9 of 32,768 |" in text
    assert "| `toy_linear` | 2 | 0.30 | seed 0, normal, eager, output |" in text
    assert "| `unsupported_recipe` | 1 | – | – |" in text
    assert "- `dgrad_doubled`: only 1.5 of the bound" in text
    assert "5 faulty cells and 3 clean twins; seeds 0, 1, 2; data normal, positive." in text
    assert "fault **1.5** (2 cells" in text
    assert "twin **0.30**" in text


def test_nothing_to_do_and_nothing_measured() -> None:
    found = journal(distance(), twin(), skipped=(*REST, ("round_toward_zero", "elsewhere")))
    assert work([found]) == []
    assert "Work to do: none." in section([found])
    assert list(sections([found])) == ["CPU"]
    assert work([journal(distance(), twin(), skipped=REST)]) == ["`round_toward_zero` was not measured"]
    with pytest.raises(ValueError, match="nothing was measured"):
        section([journal(distance(unavailable="no library"))])


def test_a_fault_that_is_missed_somewhere_is_not_shown_as_caught() -> None:
    missed = distance("round_toward_zero", "numerics.codes", kind="", ratio=None, findings=())
    assert "| `round_toward_zero` | `numerics.codes` | 1 | **none** |" in section([journal(missed, skipped=REST)])
    partly = distance(kind="", ratio=0.7, findings=(), seed=1)
    assert "| **0.70** | 10 |" in section([journal(distance(), partly, skipped=REST)])
