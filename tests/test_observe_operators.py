"""harness.observe.operators: what an operator returned beside what its fake implementation says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from harness import torch_compat
from harness.observe.operators import OperatorWatch
from harness.observe.types import OperatorSeen
from harness.torch_compat import dispatch_modes, passing_dispatch_mode
from tests.support.judging import judging

Op = Callable[[torch.Tensor], torch.Tensor]
ROWS, COLUMNS = "(4, 6) float32, strides (6, 1), on cpu", "(4, 6) float32, strides (1, 4), on cpu"


def by_rows(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape).contiguous()


def by_columns(x: torch.Tensor) -> torch.Tensor:
    return by_rows(x).t().contiguous().t()


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("operatorstest", "DEF") as library:
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: (x * 2).contiguous(), "CPU")
        yield library


def seen_of(fake: Op | None, x: torch.Tensor, library: torch.library.Library) -> tuple[OperatorSeen, ...]:
    if fake is not None:
        torch.library.register_fake("operatorstest::double", fake, lib=library)
    watch = OperatorWatch()
    with watch.watching():
        for _ in range(3):
            torch.ops.operatorstest.double(x + 1)
    return watch.seen()


def test_equal_calls_are_told_once_and_a_true_promise_is_the_result(library: torch.library.Library) -> None:
    (item,) = seen_of(by_rows, torch.ones(4, 6), library)
    assert item == OperatorSeen("operatorstest::double", ROWS, ROWS)


@pytest.mark.parametrize(
    ("fake", "promised"),
    [
        (by_columns, COLUMNS),
        (lambda x: by_rows(x).half(), ROWS.replace("float32", "float16")),
        (lambda x: x.new_empty(3, 6), ROWS.replace("(4", "(3")),
        (lambda x: by_rows(x).to("meta"), ROWS.replace("cpu", "meta")),
    ],
)
def test_each_part_of_a_broken_promise_is_told(library: torch.library.Library, fake: Op, promised: str) -> None:
    (item,) = seen_of(fake, torch.ones(4, 6), library)
    assert (item.promised, item.returned) == (promised, ROWS)


@pytest.mark.parametrize("shape", [(0, 6), (1, 6), (1, 1)])
def test_strides_that_place_no_element_are_no_part_of_it(
    library: torch.library.Library, shape: tuple[int, int]
) -> None:
    (item,) = seen_of(by_columns, torch.ones(shape), library)
    assert item.promised == item.returned


def no_fake(x: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError


@pytest.mark.parametrize("fake", [None, no_fake, lambda x: x.new_empty(int(x.sum()))])
def test_without_a_promise_there_is_nothing_to_tell(library: torch.library.Library, fake: Op | None) -> None:
    assert seen_of(fake, torch.ones(4, 6), library) == ()


def test_fakes_see_shapes_and_arguments_alone_and_run_after_the_watch(library: torch.library.Library) -> None:
    asked: list[bool] = []

    def fake(x: torch.Tensor) -> torch.Tensor:
        asked.append(torch_compat.is_fake(x))
        return by_rows(x)

    x = torch.ones(6, 4).t().requires_grad_()
    assert len(seen_of(fake, x, library)) == 1
    assert asked == [True]


def test_backward_is_watched_and_torchs_own_operators_are_not() -> None:
    from harness.fp8.key import RecipeKey

    x, w = (torch.ones(32, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    watch = OperatorWatch()
    with watch.watching():
        y = torch.ops.fp8ref.linear(x, w, None, None, RecipeKey("float8_current_scaling()"))
        torch.autograd.backward(y.relu(), torch.ones_like(y))
    assert [item.name for item in watch.seen()] == ["fp8ref::linear", "fp8ref::dgrad", "fp8ref::wgrad"]
    assert all(item.promised == item.returned for item in watch.seen())


def test_a_mode_that_the_body_leaves_behind_stays_and_the_watch_does_not() -> None:
    left = passing_dispatch_mode()
    try:
        with OperatorWatch().watching():
            left.__enter__()
        assert dispatch_modes() == ("Passing",)
    finally:
        left.__exit__(None, None, None)
    assert dispatch_modes() == ()
    with pytest.raises(ZeroDivisionError), OperatorWatch().watching():
        _ = 1 / 0
    assert dispatch_modes() == ()


def test_a_broken_promise_is_red_and_kept_ones_are_not() -> None:
    from harness.judge.compile_checks import promises

    kept, broken = OperatorSeen("lib::op", ROWS, ROWS), OperatorSeen("lib::op", ROWS, COLUMNS)
    assert promises(judging(operators=(kept,))) == []
    (finding,) = promises(judging(operators=(kept, broken)))
    assert (finding.check, finding.where, finding.expected, finding.got) == ("compile.fake", "lib::op", ROWS, COLUMNS)
    assert len(promises(judging(operators=(broken,) * 9))) == 3
