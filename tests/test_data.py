"""harness.data: documented distributions, bit-equal on every dtype path, independent of parameter order."""

from __future__ import annotations

import pytest
import torch

from harness.data import HEAVY_TAILED_LIMIT, HEAVY_TAILED_LIMIT_FLOAT16, draw, fill_parameters
from harness.types import DATA_KINDS


def gen(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("kind", DATA_KINDS)
def test_draw_is_reproducible_and_finite_in_half_precision(kind: str) -> None:
    first = draw(kind, (64, 32), gen(3), torch.float16)
    assert torch.equal(first, draw(kind, (64, 32), gen(3), torch.float16))
    assert not torch.equal(first, draw(kind, (64, 32), gen(4), torch.float16))
    assert torch.isfinite(first).all()
    assert first.dtype is torch.float16


def test_distributions_are_what_the_docstring_says() -> None:
    normal = draw("normal", (512, 512), gen(), torch.float32)
    assert abs(normal.mean().item()) < 0.01
    assert abs(normal.std().item() - 1) < 0.01
    positive = draw("positive", (512, 512), gen(), torch.float32)
    assert (positive >= 0).all()
    assert abs(positive.mean().item() - (2 / torch.pi) ** 0.5) < 0.01
    heavy = draw("heavy_tailed", (512, 512), gen(), torch.float32)
    assert heavy.abs().max().item() == HEAVY_TAILED_LIMIT
    assert abs(heavy.abs().median().item() - 0.8165) < 0.02  # median of |t_2| is sqrt(2/3)
    share_above_8 = (heavy.abs() > 8).double().mean().item()
    assert abs(share_above_8 - 0.01527) < 0.002  # P(|t_2| > x) = 1 - x / sqrt(2 + x²)


def test_heavy_tails_fit_a_gradient_of_float16() -> None:
    gradient, x = (draw("heavy_tailed", (512, 512), gen(seed), torch.float16) for seed in (1, 2))
    assert gradient.abs().max().item() == HEAVY_TAILED_LIMIT_FLOAT16
    # The sum over 512 rows of the absolute products, the most that any order of summing can meet on its way.
    assert (gradient.double().abs().t() @ x.double().abs()).max().item() < torch.finfo(torch.float16).max / 4
    wide = draw("heavy_tailed", (512, 512), gen(1), torch.float32)
    kept = wide.abs() <= HEAVY_TAILED_LIMIT_FLOAT16
    assert torch.equal(wide[kept].half(), gradient[kept])  # the same draws


def test_every_kind_of_the_schema_can_be_drawn_and_others_are_refused() -> None:
    for kind in DATA_KINDS:
        draw(kind, (2, 2), gen(), torch.bfloat16)
    with pytest.raises(ValueError, match="unknown kind of data 'gaussian'"):
        draw("gaussian", (2, 2), gen(), torch.bfloat16)


class Two(torch.nn.Module):
    def __init__(self, dtype: torch.dtype, extra: bool = False) -> None:
        super().__init__()
        if extra:
            self.first = torch.nn.Linear(3, 3, dtype=dtype)
        self.linear = torch.nn.Linear(256, 64, dtype=dtype)
        self.norm = torch.nn.LayerNorm(64, dtype=dtype)


def test_parameters_are_bit_equal_in_float64_and_independent_of_other_parameters() -> None:
    low, high, more = Two(torch.bfloat16), Two(torch.float64), Two(torch.bfloat16, extra=True)
    for model in (low, high, more):
        fill_parameters(model, 5, dtype=torch.bfloat16)
    others = dict(more.named_parameters())
    for (name, a), (_, b) in zip(low.named_parameters(), high.named_parameters(), strict=True):
        assert torch.equal(a.double(), b), name
        assert torch.equal(a, others[name]), name


def test_parameter_scales_and_seeds() -> None:
    model = Two(torch.float32)
    fill_parameters(model, 0, dtype=torch.float32)
    assert abs(model.linear.weight.std().item() * 16 - 1) < 0.05
    assert 0.15 < model.linear.bias.std().item() < 0.35
    assert (model.norm.weight > 0.4).all()
    before = model.linear.weight.detach().clone()
    fill_parameters(model, 1, dtype=torch.float32)
    assert not torch.equal(before, model.linear.weight)
    assert model.linear.weight.requires_grad
