"""harness.judge.oracle_sites: a hint is followed when it is the same tensor up to rounding, and refused otherwise."""

from __future__ import annotations

import torch

from harness.data import draw
from harness.judge.bounds import FP32, HOPPER, accumulation_bound
from harness.judge.formats import precision_of, round_to
from harness.judge.oracle import quantize
from harness.judge.oracle_sites import Hints, ProductRun, resolve
from harness.providers.protocol import Operand, TapRecord
from harness.types import Spec

BF16 = precision_of(torch.bfloat16)


def tensor(seed: int = 0) -> torch.Tensor:
    return draw("normal", (32, 64), torch.Generator().manual_seed(seed), torch.bfloat16)


def operand(source: torch.Tensor) -> Operand:
    return Operand("input", "e4m3", (32, 64), source, torch.zeros(32, 64, dtype=torch.uint8), torch.ones(1, 1))


def record(source: torch.Tensor, product: str = "fprop", pointer: int = 1, phase: str = "forward") -> TapRecord:
    return TapRecord("recipe", product, phase, operand(source), operand(source), source, pointer)


def test_an_equal_source_and_one_rounding_away_are_followed() -> None:
    own = tensor()
    used, mismatch = resolve(own.double(), operand(own.clone()), BF16, FP32)
    assert mismatch is None
    assert torch.equal(used, own.double())
    nearby = torch.nextafter(own, torch.full_like(own, 100.0))
    used, mismatch = resolve(own.double(), operand(nearby), BF16, FP32)
    assert mismatch is None
    assert torch.equal(used, nearby.double())


def test_another_tensor_is_refused_even_if_a_single_element_is_off() -> None:
    own = tensor()
    for other in (tensor(1), 2 * own, -own, own * 1.05):
        used, mismatch = resolve(own.double(), operand(other), BF16, FP32)
        assert torch.equal(used, own.double())
        assert mismatch is not None
        assert mismatch.worst is not None
        assert mismatch.worst.ratio > 1
    off = own.clone()
    off[3, 4] += 1.0
    _, mismatch = resolve(own.double(), operand(off), BF16, FP32)
    assert mismatch is not None
    assert mismatch.worst is not None
    assert (mismatch.worst.index, mismatch.worst.outside) == ((3, 4), 1)


def test_nan_and_other_shapes_are_refused() -> None:
    own = tensor()
    broken = own.clone()
    broken[0, 0] = float("nan")
    used, mismatch = resolve(own.double(), operand(broken), BF16, FP32)
    assert torch.equal(used, own.double())
    assert mismatch is not None
    used, mismatch = resolve(own.double(), operand(own.t().contiguous()), BF16, FP32)
    assert torch.equal(used, own.double())
    assert mismatch is not None
    assert "shape (64, 32) instead of (32, 64)" in mismatch.reason


def test_records_are_taken_by_layer_and_product_in_order_nearest_first() -> None:
    first, second = record(tensor(0)), record(tensor(1))
    hints = Hints([first, second, record(tensor(2), "dgrad"), record(tensor(3), pointer=2)], {1: "a", 2: "b"})
    assert hints.take("a", "fprop", tensor(1).double()) is second  # a layer used twice: the use that it is
    assert hints.take("a", "fprop", tensor(1).double()) is first
    assert hints.take("a", "fprop", tensor(1).double()) is None
    assert hints.take("b", "wgrad", tensor(3).double()) is None
    assert [r.product for r in hints.left_over()] == ["dgrad", "fprop"]


def test_recomputations_are_not_products_and_unknown_weights_are_kept_apart() -> None:
    hints = Hints([record(tensor(), phase="recompute"), record(tensor(), pointer=9)], {1: "a"})
    assert hints.take("a", "fprop", tensor().double()) is None
    assert [r.weight_ptr for r in hints.unknown] == [9]
    assert list(hints.left_over()) == []


def test_a_record_of_another_shape_or_nan_is_the_farthest() -> None:
    nan = tensor()
    nan[0, 0] = float("nan")
    good = record(tensor(0) * 4)
    hints = Hints([record(tensor().t().contiguous()), record(nan), good], {1: "a"})
    assert hints.take("a", "fprop", tensor().double()) is good


def test_equal_products_share_a_record_where_aot_merges_them() -> None:
    a, b, other = tensor(0).double(), tensor(5).double(), tensor(6).double()
    one = record(tensor(0))
    hints = Hints([one], {1: "a"}, merging=True)
    assert hints.take("a", "fprop", a, b, "r") is one
    assert hints.take("a", "fprop", a.clone(), b.clone(), "r") is one
    for name, product, given, recipe in (
        ("a", "fprop", (a, other), "r"),
        ("a", "fprop", (other, b), "r"),
        ("a", "fprop", (a, b), "another recipe"),
        ("a", "dgrad", (a, b), "r"),
        ("b", "fprop", (a, b), "r"),
    ):
        assert hints.take(name, product, *given, recipe) is None
    assert hints.left_over() == []


def test_equal_products_have_a_record_each_where_nothing_merges_them() -> None:
    a, b = tensor(0).double(), tensor(5).double()
    eager = Hints([record(tensor(0))], {1: "a"})
    assert eager.take("a", "fprop", a, b, "r") is not None
    assert eager.take("a", "fprop", a, b, "r") is None
    first, second, third = record(tensor(0)), record(tensor(1)), record(tensor(0))
    compiled = Hints([first, second, third], {1: "a"}, merging=True)  # AOT merged nothing: none may be left over
    taken = [compiled.take("a", "fprop", a, b, "r"), compiled.take("a", "fprop", a, b, "r")]
    assert {id(one) for one in taken} == {id(first), id(third)}
    assert [id(one) for one in compiled.left_over()] == [id(second)]


def test_layers_that_share_a_weight_share_their_records() -> None:
    seen = record(tensor(), pointer=1)
    assert Hints([seen], {1: "head"}).take("first", "fprop", tensor().double()) is None
    tied = Hints([seen], {1: "head"}, aliases={"head": "first", "first": "first"})
    assert tied.take("first", "fprop", tensor().double()) is seen


def product_of(a: torch.Tensor, b: torch.Tensor) -> ProductRun:
    own = [quantize(x, Spec("float8_current_scaling"), "input") for x in (a, b)]
    exact = own[0].source @ own[1].source.t()
    return ProductRun(0, 0, "a", Spec("float8_current_scaling"), "dgrad", own[0], own[1], exact, exact)


def test_a_source_that_is_a_product_may_be_off_by_its_kernels_bound_and_no_more() -> None:
    """Two large terms that cancel: the sum says nothing of how far its kernel may be off."""
    a = torch.full((32, 64), 2.0**-6, dtype=torch.float64)
    b = a.clone()
    a[:, 0], a[:, 1] = 64.0, -64.0
    b[:, :2] = 64.0
    product = product_of(a, b)
    own = round_to(product.exact, BF16)
    kernel = product.kernel_bound(HOPPER, BF16)
    bound = float(accumulation_bound(torch.tensor(8192.0), 64, HOPPER, BF16))
    for off, right in ((0.9 * bound, True), (1.1 * bound, False)):
        seen = operand(own + off)
        _, mismatch = resolve(own, seen, BF16, HOPPER, kernel=kernel)
        assert (mismatch is None) == right
        _, mismatch = resolve(own, seen, BF16, HOPPER)
        assert mismatch is not None
