"""Helpers for tests of the reference system."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from harness import fp8
from harness.fp8.recipe import RECIPE_CLASSES, Recipe

STATELESS = [cls for name, cls in RECIPE_CLASSES.items() if name != "delayed_scaling"]

# Another value for every field of every recipe: (class, field, value).
OTHER_FIELDS = [
    (fp8.DelayedScaling, "margin", 1),
    (fp8.DelayedScaling, "fp8_format", fp8.Format.E4M3),
    (fp8.DelayedScaling, "amax_history_len", 16),
    (fp8.DelayedScaling, "amax_compute_algo", "most_recent"),
    (fp8.Float8CurrentScaling, "fp8_format", fp8.Format.E4M3),
    (fp8.Float8CurrentScaling, "power_2_scale", True),
    (fp8.Float8CurrentScaling, "amax_epsilon", 0.5),
    (fp8.Float8RowwiseScaling, "fp8_format", fp8.Format.HYBRID),
    (fp8.Float8RowwiseScaling, "power_2_scale", True),
    (fp8.Float8RowwiseScaling, "amax_epsilon", 0.5),
    (fp8.Float8BlockScaling, "fp8_format", fp8.Format.HYBRID),
    (fp8.Float8BlockScaling, "use_f32_scales", True),
    (fp8.Float8BlockScaling, "amax_epsilon", 0.5),
    (fp8.MXFP8BlockScaling, "fp8_format", fp8.Format.HYBRID),
    (fp8.MXFP8BlockScaling, "scale_rounding", "floor"),
    (fp8.NVFP4BlockScaling, "disable_2d_quantization", True),
]


@pytest.fixture
def clean_fp8() -> Iterator[None]:
    """A fresh FP8 state and no compiled code, before and after."""
    fp8.FP8GlobalStateManager.reset()
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    fp8.FP8GlobalStateManager.reset()
    torch._dynamo.reset()


def layers(count: int, features: int = 128, **options: object) -> torch.nn.ModuleList:
    """``count`` square ToyLinears."""
    return torch.nn.ModuleList([fp8.ToyLinear(features, features, **options) for _ in range(count)])  # type: ignore[arg-type]


def batch(rows: int = 128, features: int = 128, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A new input that wants a gradient."""
    return torch.randn(rows, features, dtype=dtype, requires_grad=True)


def nested(model: Sequence[torch.nn.Module]) -> Callable[[torch.Tensor, Recipe, Recipe], torch.Tensor]:
    """Outer recipe, inner recipe, disabled, outer again; one layer each."""

    def forward(x: torch.Tensor, outer: Recipe, inner: Recipe) -> torch.Tensor:
        with fp8.autocast(recipe=outer):
            x = model[0](x)
            with fp8.autocast(recipe=inner):
                x = model[1](x)
            with fp8.autocast(enabled=False):
                x = model[2](x)
            return model[3](x)

    return forward


def one_region(model: Sequence[torch.nn.Module]) -> Callable[[torch.Tensor, object], torch.Tensor]:
    """All layers in one region."""

    def forward(x: torch.Tensor, recipe: object) -> torch.Tensor:
        with fp8.autocast(recipe=recipe):  # type: ignore[arg-type]
            for layer in model:
                x = layer(x)
            return x

    return forward


def counted(
    function: Callable[..., torch.Tensor], backend: str = "aot_eager", fullgraph: bool = True, **options: object
):  # type: ignore[no-untyped-def]
    """The compiled function and the backend that counts its graphs."""
    counter = CompileCounterWithBackend(backend)
    return torch.compile(function, backend=counter, fullgraph=fullgraph, **options), counter  # type: ignore[call-overload]


def gradients(
    function: Callable[..., torch.Tensor], model: torch.nn.Module, x: torch.Tensor, *arguments: object
) -> list[torch.Tensor]:
    """Output, input gradient and all parameter gradients of one step, each with its own storage."""
    model.zero_grad(set_to_none=True)
    x.grad = None
    y = function(x, *arguments)
    y.backward(torch.linspace(-1, 1, y.numel(), dtype=y.dtype, device=y.device).reshape(y.shape))
    return [y.detach().clone()] + [
        tensor.grad.clone() for tensor in (x, *model.parameters()) if tensor.grad is not None
    ]


def chain(error: BaseException) -> list[BaseException]:
    """The error and everything it came from."""
    links: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in links:
        links.append(current)
        current = current.__cause__ or current.__context__
    return links
