"""harness.layout: copies and new values in the layout of another tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from harness.layout import copied, laid_out_like

X = torch.arange(24.0).reshape(4, 6)
LAYOUTS: dict[str, torch.Tensor] = {
    "contiguous": X,
    "transposed": X.t(),
    "offset": X[1:],
    "strided": X[1:, 1::2],
    "permuted": torch.arange(24).reshape(2, 3, 4).permute(2, 0, 1),
    "expanded": torch.arange(5.0)[2:].expand(4, 3),
    "scalar": torch.tensor(3.0),
    "empty": X[:, 6:],
    "flags": torch.tensor([True, False, True])[::2],
}


def layout_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_copy_has_layout_and_values_and_its_own_storage(name: str) -> None:
    example = LAYOUTS[name]
    copy = copied(example)
    assert layout_of(copy) == layout_of(example)
    assert torch.equal(copy, example)
    assert copy._is_view() == example._is_view()
    assert example.numel() == 0 or copy.untyped_storage().data_ptr() != example.untyped_storage().data_ptr()


def test_a_copy_may_be_another_multiple_and_is_a_leaf() -> None:
    example = X.t().requires_grad_()
    copy = copied(example, 0.125)
    assert layout_of(copy) == layout_of(example)
    assert torch.equal(copy, example.detach() * 0.125)
    assert copy.requires_grad_().is_leaf


def test_elements_that_share_memory_are_copied_but_not_filled() -> None:
    windows = torch.arange(6.0).unfold(0, 3, 1)
    assert torch.equal(copied(windows), windows)
    assert copied(windows).stride() == (1, 1)
    with pytest.raises(ValueError, match="share memory"):
        laid_out_like(torch.zeros(4, 3), windows)


@pytest.mark.parametrize("name", sorted(set(LAYOUTS) - {"expanded"}))
def test_values_take_the_layout_of_the_example(name: str) -> None:
    example = LAYOUTS[name]
    values = example.flip(0) if example.dim() else example + 1
    laid = laid_out_like(values, example)
    assert layout_of(laid) == layout_of(example)
    assert laid._is_view() == example._is_view()
    assert torch.equal(laid, values)


def test_values_along_an_expanded_dimension_are_the_first_one() -> None:
    laid = laid_out_like(torch.arange(12.0).reshape(4, 3), LAYOUTS["expanded"])
    assert laid.stride() == (0, 1)
    assert laid.tolist() == [[0.0, 1.0, 2.0]] * 4


def test_what_lies_between_the_elements_shows_itself() -> None:
    laid = laid_out_like(torch.ones(3, 3), X[1:, 1::2])
    storage = laid.as_strided((7 + 12 + 4 + 1,), (1,), 0)
    assert int(storage.isnan().sum()) == storage.numel() - 9


def test_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="can't be laid out"):
        laid_out_like(torch.ones(3), X)


class Wrapper(torch.Tensor):
    """A subclass that holds a tensor, and can be computed with, but not addressed."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        made: Wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined]
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert "as_strided" not in str(func)
        return cls(func(*(one.inner if isinstance(one, cls) else one for one in args), **(kwargs or {})))


def test_what_has_no_strides_is_cloned() -> None:
    sparse = torch.eye(3).to_sparse()
    assert torch.equal(copied(sparse, 2.0).to_dense(), 2 * torch.eye(3))
    assert torch.equal(laid_out_like(sparse, sparse).to_dense(), torch.eye(3))
    wrapped: Any = copied(Wrapper(torch.ones(2)), 3.0)
    assert wrapped.inner.tolist() == [3.0, 3.0]
