"""What `state.memory` says: how much, of what, by which of its two looks."""

from __future__ import annotations

from harness.judge.memory_check import CHECKS, memory
from harness.observe.types import Kept, Left
from harness.types import Evidence
from tests.support.judging import judging

CODES, SCALE = "(256, 128) float8_e4m3fn on cuda", "(1, 1) float32 on cuda"


def _kept(*left: Left, allocated: tuple[int, ...] = ()) -> Kept:
    return Kept(10, left, allocated)


def test_tensors_are_told_by_size_first() -> None:
    left = [Left(stretch, size, what) for stretch in (0, 1, 2) for size, what in ((4, SCALE), (32768, CODES))]
    (finding,) = memory(judging(kept=_kept(*left)))
    assert (finding.expected, finding.where) == ("no more memory in use than before", "steady calls")
    assert finding.got == f"6 tensors more after 9 calls, 98,316 bytes: 3 x {CODES}, 3 x {SCALE}"


def test_many_kinds_are_cut_short() -> None:
    left = [Left(stretch, 2, f"({kind},) uint8 on cpu") for stretch in (0, 1, 2) for kind in range(5)]
    (finding,) = memory(judging(kept=_kept(*left)))
    assert finding.got.endswith("2 other kinds")


def test_bytes_without_tensors_are_told_as_such() -> None:
    (finding,) = memory(judging(kept=_kept(Left(2, 4, SCALE), allocated=tuple(range(0, 1280, 128)))))
    assert finding.got == "1,152 bytes more of the GPU after 9 calls, in no tensor that piles up in Python"


def test_what_one_stretch_left_is_no_finding() -> None:
    assert memory(judging(kept=_kept(Left(0, 4, SCALE), Left(2, 4, SCALE), allocated=(512,) * 10))) == ()


def test_it_does_not_apply_where_no_steady_call_was_made() -> None:
    for check in CHECKS:
        assert not check.applies(judging(kept=None, evidence=Evidence.TRACED))
        assert check.applies(judging())
