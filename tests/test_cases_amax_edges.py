"""cases.amax_edges: its edges are what they say, in every dtype, and its own comparisons see what they must."""

from __future__ import annotations

import pytest
import torch

from cases import CASES, amax_edges
from cases.amax_edges import (
    EDGES,
    EMPTY,
    LARGEST_LAST,
    UNBOUNDED,
    ZERO_GRADIENT,
    ZERO_WEIGHT,
    same_but_for_nan,
)
from harness.program import CaseContext
from harness.providers.load import loaded_provider
from harness.providers.protocol import Operand, TapRecord
from harness.types import Axes, Spec

INF, NAN = float("inf"), float("nan")


def drawn(name: str, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 256, generator=generator).to(dtype)
    return {**EDGES, **UNBOUNDED}[name](x)


def record(scale: float, format: str = "e4m3", whole: float | None = None) -> TapRecord:
    def operand(value: float) -> Operand:
        global_scale = None if whole is None else torch.tensor([whole])
        codes = torch.zeros(1, 1, dtype=torch.uint8)
        return Operand("input", format, (1, 1), torch.zeros(1, 1), codes, torch.tensor([[value]]), global_scale)

    return TapRecord("r", "fprop", "forward", operand(scale), operand(1.0), torch.zeros(1, 1), 0)


def test_every_variant_is_one_of_these() -> None:
    others = {EMPTY, LARGEST_LAST, ZERO_WEIGHT, ZERO_GRADIENT}
    assert set(CASES["amax_edges"].variants) == {*EDGES, *UNBOUNDED, *others}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", sorted(EDGES))
def test_edges_are_finite_in_every_dtype_that_has_them(name: str, dtype: torch.dtype) -> None:
    x = drawn(name, dtype)
    assert bool(torch.isfinite(x).all())
    assert x.any() or name == "zeros" or (name, dtype) == ("scale_overflow", torch.float16)


def test_a_tiny_amax_has_normal_scales_and_a_smaller_one_has_not() -> None:
    normal = torch.finfo(torch.float32).tiny
    tiny = drawn("tiny").abs().amax().float()
    assert 1 / (torch.tensor(448.0) / tiny) > normal
    overflow = drawn("scale_overflow").abs().amax().float()
    assert (torch.tensor(448.0) / overflow).isinf()
    assert 1 / torch.tensor(torch.finfo(torch.float32).max) < normal  # what stands in has a subnormal inverse


def test_a_huge_value_leaves_no_code_to_the_others() -> None:
    x = drawn("huge").float()
    codes = (x * (448 / x.abs().amax())).to(torch.float8_e4m3fn).float()
    assert int((codes != 0).sum()) == 1


def test_zeros_lie_where_blocks_are() -> None:
    assert int((drawn("zero_row") == 0).all(dim=1).sum()) == 1
    block = drawn("zero_block") == 0
    assert bool(block[:128, :128].all())
    assert not bool(block[128:].any())
    mask = amax_edges._mask(torch.zeros(256, 256))
    assert set(mask.unique().tolist()) == {0.0, 1.0}
    assert int((mask == 0).all(dim=1).sum()) == 1


def test_a_weight_is_forgotten_in_place() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
    amax_edges.forget_first_weight(model)
    weights = [parameter.any().item() for parameter in model.parameters()]
    assert weights == [False, True]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([1.0, NAN], [1.0, NAN], True),
        ([1.0, INF], [1.0, INF], True),
        ([1.0, NAN], [1.0, 7.0], False),
        ([1.0, NAN], [2.0, NAN], False),
        ([INF], [-INF], False),
        ([NAN], [INF], False),
    ],
)
def test_bits_but_for_nan(one: list[float], other: list[float], same: bool) -> None:
    assert same_but_for_nan(torch.tensor(one), torch.tensor(other)) is same


@pytest.mark.parametrize(
    ("given", "bad"),
    [
        ([record(1.0)], 0),
        ([record(0.0)], 1),
        ([record(NAN)], 1),
        ([record(INF)], 1),
        ([record(0.0, "e2m1"), record(NAN, "e2m1")], 0),
        ([record(INF, "e2m1")], 1),
        ([record(1.0, "e2m1", whole=0.0)], 2),  # both operands have it
        ([], 1),
    ],
)
def test_scales_that_no_recipe_may_come_to(given: list[TapRecord], bad: int) -> None:
    assert amax_edges._unusable(given) == bad


@pytest.mark.parametrize("variant", CASES["amax_edges"].variants)
def test_batches_are_those_of_the_variant(variant: str) -> None:
    axes = Axes("amax_edges", Spec("reference"), Spec("float8_current_scaling"), variant=variant)
    with loaded_provider(axes.provider) as loaded:
        program = amax_edges.build(CaseContext(loaded.provider, axes, None, torch.device("cpu"), torch.bfloat16))
    batch = program.make_inputs(torch.Generator().manual_seed(0))
    assert len(batch) == (2 if variant in (ZERO_GRADIENT, LARGEST_LAST) else 1)
    assert bool(torch.isfinite(batch[0]).all())  # what is not finite comes in the probes alone
    assert (program.update is not None) is (variant in (ZERO_WEIGHT, LARGEST_LAST))
    assert (program.probes is not None) is (variant in {*UNBOUNDED, EMPTY})


def test_the_largest_element_is_the_last_one_of_each_operand() -> None:
    axes = Axes("amax_edges", Spec("reference"), Spec("float8_current_scaling"), variant=LARGEST_LAST)
    with loaded_provider(axes.provider) as loaded:
        program = amax_edges.build(CaseContext(loaded.provider, axes, None, torch.device("cpu"), torch.bfloat16))
    x, mask = program.make_inputs(torch.Generator().manual_seed(0))
    assert program.update is not None
    program.update(program.model)
    for tensor in (x, mask, *program.model.parameters()):
        assert int(tensor.abs().argmax()) == tensor.numel() - 1


def test_float16_has_no_scale_beyond_float32() -> None:
    def reason(variant: str, dtype: str) -> str:
        axes = Axes("amax_edges", Spec("reference"), Spec("float8_current_scaling"), variant=variant, dtype=dtype)
        return amax_edges.unavailable(None, axes, "cpu")  # type: ignore[arg-type]

    assert "float16" in reason("scale_overflow", "float16")
    assert reason("scale_overflow", "bfloat16") == reason("tiny", "float16") == ""
