"""cases.exception: what each variant runs and where it has something to raise."""

from __future__ import annotations

import pytest
import torch

from cases.exception import BAD, GOOD, ROWS, Table, _ReadInBackward, _state, build, unavailable
from cases.interrupting import Stop, pass_unless, stopped
from harness.probing import NotAsDocumented
from harness.program import CaseContext, Expects
from harness.providers.reference import ReferenceProvider
from harness.types import Axes, Spec

A, B = Spec("float8_current_scaling"), Spec("float8_block_scaling")


def expects(variant: str, *, fullgraph: bool = True, shape: tuple[int, int, int] = (128, 256, 128)) -> Expects:
    axes = Axes("exception", Spec("reference"), A, variant=variant, fullgraph=fullgraph, shape=shape)
    return build(CaseContext(ReferenceProvider(), axes, B, torch.device("cpu"), torch.bfloat16)).expects


def test_a_failing_call_runs_what_comes_before_its_exception() -> None:
    a, b = A.label, B.label
    nested = expects("nested").step(0)
    assert (nested.fprop, nested.of("dgrad")) == ((a, a, b, a), (a, b, a))
    swallowed = expects("swallowed").step(5)
    assert (swallowed.fprop, swallowed.of("wgrad")) == ((b, b, b, a), (a, b, b))
    backward = expects("backward").step(0)
    assert (backward.fprop, backward.of("dgrad")) == ((a,) * 4, (a,) * 3)


def test_a_raise_is_an_eager_frame_without_fullgraph_and_nothing_ran_with_it() -> None:
    refused, allowed = expects("python"), expects("python", fullgraph=False)
    assert [len(refused.step(i).fprop) for i in (0, 1, 2, 3, 13)] == [2, 3, 3, 2, 2]
    assert [len(refused.step(i, compiled=True).fprop) for i in (0, 1, 2)] == [2, 2, 2]
    assert [len(allowed.step(i, compiled=True).fprop) for i in (0, 1, 2)] == [2, 3, 3]
    assert (refused.graphs, refused.eager_frames, allowed.graphs, allowed.eager_frames) == (1, 0, 3, 2)
    assert expects("python", fullgraph=False, shape=(128, 128, 128)).graphs == 2, "equal shapes share a graph"


def test_the_table_adds_nothing_or_raises() -> None:
    table, like = Table(torch.zeros(ROWS)), torch.ones(2, 2, dtype=torch.bfloat16)
    assert torch.equal(like + table.read(torch.tensor([GOOD]), like), like)
    with pytest.raises(IndexError, match="out of bounds"):
        table.read(torch.tensor([BAD]), like)


def test_reading_in_backward_leaves_the_gradient_alone_or_raises() -> None:
    for at, fails in ((GOOD, False), (BAD, True)):
        x = torch.ones(2, 2, requires_grad=True)
        y = _ReadInBackward.apply(x, torch.zeros(ROWS), torch.tensor([at]))
        if fails:
            with pytest.raises(IndexError):
                y.backward(torch.full_like(y, 3.0))
        else:
            y.backward(torch.full_like(y, 3.0))
            assert torch.equal(x.grad, torch.full_like(x, 3.0))  # type: ignore[arg-type]


def test_an_interrupt_runs_what_comes_before_it_and_is_no_exception() -> None:
    a, b = A.label, B.label
    interrupted = expects("interrupted").step(3)
    assert (interrupted.fprop, interrupted.of("dgrad")) == ((a, a, b, a), (a, b, a))
    assert not issubclass(Stop, Exception)


def test_the_interrupting_operator_passes_or_stops() -> None:
    x = torch.arange(4.0, requires_grad=True)
    y = pass_unless(x, torch.tensor([False]))
    y.backward(torch.full_like(y, 3.0))
    assert torch.equal(y, x)
    assert torch.equal(x.grad, torch.full_like(x, 3.0))  # type: ignore[arg-type]
    with stopped("a region"):
        pass_unless(x, torch.tensor([True]))


def test_an_interrupt_that_does_not_come_or_comes_as_another_is_told() -> None:
    with pytest.raises(NotAsDocumented, match="nothing was raised"), stopped("a region"):
        pass
    with pytest.raises(KeyError), stopped("a region"):
        raise KeyError


def test_the_oracle_has_no_state_and_the_provider_has() -> None:
    assert _state(None) == {}
    assert "state.fp8_enabled" in _state(ReferenceProvider())


def test_only_a_refused_raise_can_be_traced_for_a_machine_elsewhere() -> None:
    def reason(variant: str, arch: str, *, fullgraph: bool = True) -> str:
        axes = Axes("exception", Spec("reference"), A, arch, variant=variant, fullgraph=fullgraph)
        return unavailable(ReferenceProvider(), axes, arch)

    assert reason("op", "cpu") == reason("python", "sm100") == ""
    assert "nothing executes for sm100" in reason("op", "sm100")
    assert "nothing executes" in reason("python", "sm100", fullgraph=False)
