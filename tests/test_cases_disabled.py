"""cases.disabled: what counts as building a recipe."""

from __future__ import annotations

import pytest

from cases.disabled import AROUND, _around_expects, constructions
from harness import fp8
from harness.fp8.recipe import make_recipe


def test_constructions_are_counted_by_whatever_path_and_only_inside() -> None:
    before = vars(fp8.DelayedScaling)["__init__"]
    with constructions([fp8.Float8CurrentScaling()]) as built:
        fp8.DelayedScaling(margin=1)
        make_recipe("mxfp8_block_scaling", {})
    fp8.DelayedScaling()
    assert built == ["DelayedScaling", "MXFP8BlockScaling"]
    assert vars(fp8.DelayedScaling)["__init__"] is before


def test_constructors_come_back_after_an_exception_and_still_check() -> None:
    before = vars(fp8.DelayedScaling)["__init__"]
    with pytest.raises(ValueError, match="amax_history_len"), constructions([fp8.DelayedScaling()]):
        fp8.DelayedScaling(amax_history_len=0)
    assert vars(fp8.DelayedScaling)["__init__"] is before


def test_a_class_that_only_inherits_its_constructor_is_counted_once() -> None:
    class Own(fp8.DelayedScaling):
        pass

    with constructions([Own()]) as built:
        Own()
    assert built == ["Own"]


def test_regions_around_end_on_their_innermost_one() -> None:
    expects = _around_expects({"outer": "A", "inner": "B"})
    ran = [step.fprop for step in expects.schedule]
    assert ran == [("A", "A"), (), (), ("B", "B"), (), ("A", "A")]
    assert (len(AROUND), expects.graphs, expects.recompiles) == (6, 3, 2)
    assert _around_expects({"outer": "A", "inner": "A"}).graphs == 2
