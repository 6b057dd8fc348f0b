"""harness.judge.oracle_provider: regions, the trace, delayed scaling over steps, recomputation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils import parametrize

from harness.data import draw, fill_parameters
from harness.judge.formats import precision_of, round_to
from harness.judge.oracle import quantize
from harness.judge.oracle_provider import OracleProvider, OracleUnsupported
from harness.types import Scalar, Spec

CURRENT, MXFP8, BLOCK = Spec("float8_current_scaling"), Spec("mxfp8_block_scaling"), Spec("float8_block_scaling")
BF16 = precision_of(torch.bfloat16)


class Model(torch.nn.Module):
    """``layers`` square linears of 128 features."""

    def __init__(self, provider: OracleProvider, layers: int, bias: bool = False) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            provider.linear(128, 128, bias=bias, dtype=torch.bfloat16, device=torch.device("cpu"))
            for _ in range(layers)
        )


def made(layers: int, bias: bool = False, mode: str = "quantised") -> tuple[OracleProvider, Model]:
    provider = OracleProvider(torch.bfloat16, mode)
    model = Model(provider, layers, bias)
    fill_parameters(model, 0, dtype=torch.bfloat16)
    provider.name_layers(model)
    return provider, model


def batch(seed: int = 0) -> torch.Tensor:
    x = draw("normal", (64, 128), torch.Generator().manual_seed(seed), torch.bfloat16)
    return x.double().requires_grad_(True)


def step(provider: OracleProvider, forward: Callable[[torch.Tensor], torch.Tensor], seed: int = 0) -> dict[str, Any]:
    """One forward and backward; the trace and the tensors."""
    provider.begin_step()
    x = batch(seed)
    y = forward(x)
    gradient = draw("normal", tuple(y.shape), torch.Generator().manual_seed(seed + 1), torch.bfloat16).double()
    with provider.backward_pass(y, gradient):
        y.backward(gradient)
    return {"x": x, "y": y, "dx": x.grad, "trace": provider.trace}


def test_forward_and_backward_of_one_layer_by_hand() -> None:
    provider, model = made(1, bias=True)
    layer: Any = model.layers[0]

    def forward(x: torch.Tensor) -> torch.Tensor:
        with provider.autocast(enabled=True, recipe=provider.recipe(CURRENT)):
            return layer(x)  # type: ignore[no-any-return]

    seen = step(provider, forward)
    x, w = seen["x"].detach(), layer.weight.detach()
    g = draw("normal", (64, 128), torch.Generator().manual_seed(1), torch.bfloat16).double()
    qx, qw, qg = (quantize(t, CURRENT, r).values for t, r in ((x, "input"), (w, "weight"), (g, "grad_output")))
    rounded = round_to(round_to(qx @ qw.t(), BF16) + layer.bias.detach(), BF16)
    assert torch.equal(seen["y"].detach(), rounded)
    assert torch.equal(seen["dx"], round_to(qg @ qw, BF16))
    assert torch.equal(layer.weight.grad, round_to(qg.t() @ qx, BF16))
    assert torch.equal(layer.bias.grad, round_to(g.sum(0), BF16))
    assert [(t.recipe, t.product, t.phase, t.layer, t.name) for t in seen["trace"]] == [
        ("float8_current_scaling", "fprop", "forward", 0, "layers.0"),
        ("float8_current_scaling", "dgrad", "backward", 0, "layers.0"),
        ("float8_current_scaling", "wgrad", "backward", 0, "layers.0"),
    ]
    assert provider.fp8_products == 3


def test_exact_mode_and_disabled_regions_do_not_quantise() -> None:
    exact, model = made(1, mode="exact")

    def forward(x: torch.Tensor) -> torch.Tensor:
        with exact.autocast(recipe=exact.recipe(CURRENT)):
            return model.layers[0](x)  # type: ignore[no-any-return]

    seen = step(exact, forward)
    wanted = round_to(seen["x"].detach() @ model.layers[0].weight.detach().t(), BF16)  # type: ignore[operator, union-attr]
    assert torch.equal(seen["y"].detach(), wanted)
    assert seen["trace"] == ()

    provider, model = made(1)
    with provider.autocast(recipe=provider.recipe(CURRENT)), provider.autocast(enabled=False):
        off = model.layers[0](batch())
    assert torch.equal(off.detach(), wanted)
    assert torch.equal(model.layers[0](batch()).detach(), wanted)


def test_nested_regions_restore_the_outer_recipe() -> None:
    provider, model = made(5)
    layers = model.layers

    def forward(x: torch.Tensor) -> torch.Tensor:
        with provider.autocast(recipe=provider.recipe(CURRENT)):
            x = layers[0](x)
            with provider.autocast(recipe=provider.recipe(MXFP8)):
                x = layers[1](x)
                with provider.autocast(enabled=False, recipe=provider.recipe(BLOCK)):
                    x = layers[2](x)
                x = layers[3](x)
            return layers[4](x)  # type: ignore[no-any-return]

    trace = step(provider, forward)["trace"]
    forward_trace = [(t.name, t.recipe) for t in trace if t.product == "fprop"]
    assert forward_trace == [
        ("layers.0", "float8_current_scaling"),
        ("layers.1", "mxfp8_block_scaling"),
        ("layers.3", "mxfp8_block_scaling"),
        ("layers.4", "float8_current_scaling"),
    ]
    backward_trace = [(t.name, t.recipe) for t in trace if t.product == "wgrad"]
    assert backward_trace == forward_trace[::-1]


def test_an_exception_leaves_no_region_open() -> None:
    provider, model = made(1)
    with pytest.raises(RuntimeError, match="inside"), provider.autocast(recipe=provider.recipe(CURRENT)):
        raise RuntimeError("inside")
    seen = step(provider, lambda x: model.layers[0](x))
    assert seen["trace"] == ()


def test_equal_specs_give_equal_but_new_recipes() -> None:
    provider, _ = made(1)
    one, two = provider.recipe(CURRENT), provider.recipe(Spec("float8_current_scaling"))
    assert one == two
    assert one is not two


def test_what_no_specification_settles_is_unsupported() -> None:
    provider, _ = made(1)
    with pytest.raises(OracleUnsupported, match="default recipe"), provider.autocast():
        pass
    with pytest.raises(OracleUnsupported, match="unknown recipe"):
        provider.recipe(Spec("int8"))
    with pytest.raises(ValueError, match="unknown mode 'half'"):
        OracleProvider(torch.bfloat16, "half")


def delayed(**fields: Scalar) -> Spec:
    return Spec("delayed_scaling", tuple(sorted(fields.items())))


def test_delayed_scaling_uses_the_scales_of_earlier_steps() -> None:
    provider, model = made(1)
    recipe = delayed(amax_history_len=4)

    def forward(x: torch.Tensor) -> torch.Tensor:
        with provider.autocast(recipe=provider.recipe(recipe)):
            return model.layers[0](x)  # type: ignore[no-any-return]

    scales, amaxes = [], []
    for seed in range(3):
        seen = step(provider, forward, seed)
        (site,) = provider.run.sites
        scales.append(dict(site.encode_scales))
        amaxes.append(float(seen["x"].detach().abs().amax()))
    f32 = [torch.tensor(a, dtype=torch.float32) for a in amaxes]
    assert scales[0] == {"input": 1.0, "weight": 1.0, "grad_output": 1.0}
    assert scales[1]["input"] == float(torch.tensor(448.0) / f32[0])
    assert scales[2]["input"] == float(torch.tensor(448.0) / max(f32[0], f32[1]))
    assert scales[1]["grad_output"] > 1000  # e5m2
    assert scales[1]["weight"] == scales[2]["weight"]


def test_delayed_backward_keeps_the_scales_of_its_forward() -> None:
    provider, model = made(1)

    def forward(x: torch.Tensor) -> torch.Tensor:
        with provider.autocast(recipe=provider.recipe(delayed())):
            return model.layers[0](x)  # type: ignore[no-any-return]

    step(provider, forward)
    step(provider, forward, 1)
    site = provider.run.sites[0]
    fprop, wgrad = site.products["fprop"], site.products["wgrad"]
    assert torch.equal(wgrad.b.codes, fprop.a.codes.t())
    assert torch.equal(wgrad.b.scale, fprop.a.scale)


def test_inner_regions_of_the_same_recipe_update_once_per_outermost_region() -> None:
    provider, model = made(2)
    recipe = delayed(amax_history_len=8)

    def nested(x: torch.Tensor) -> torch.Tensor:
        with provider.autocast(recipe=provider.recipe(recipe)):
            with provider.autocast(recipe=provider.recipe(recipe)):
                x = model.layers[0](x)
            assert provider.run.memories.use(0, "input", recipe, 0.0) == 1.0  # not moved by the inner exit
            return model.layers[1](x)  # type: ignore[no-any-return]

    step(provider, nested)
    assert provider.run.memories.use(0, "input", recipe, 0.0) > 1.0


@pytest.mark.parametrize("use_reentrant", [True, False], ids=["reentrant", "non-reentrant"])
def test_recomputation_is_the_forward_it_repeats(use_reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    def run(checkpointed: bool) -> dict[str, Any]:
        provider, model = made(3)

        def body(x: torch.Tensor) -> torch.Tensor:
            return model.layers[1](torch.relu(model.layers[0](x)))  # type: ignore[no-any-return]

        def forward(x: torch.Tensor) -> torch.Tensor:
            with provider.autocast(recipe=provider.recipe(MXFP8)):
                x = checkpoint(body, x, use_reentrant=use_reentrant) if checkpointed else body(x)
                return model.layers[2](x)  # type: ignore[no-any-return]

        seen = step(provider, forward)  # backward runs outside the region
        return seen | {"grads": [p.grad for p in model.parameters()], "products": provider.fp8_products}

    plain, again = run(False), run(True)
    assert torch.equal(plain["y"], again["y"])
    assert torch.equal(plain["dx"], again["dx"])
    assert all(torch.equal(a, b) for a, b in zip(plain["grads"], again["grads"], strict=True))
    recomputed = [(t.name, t.recipe) for t in again["trace"] if t.phase == "recompute"]
    assert recomputed == [("layers.0", "mxfp8_block_scaling"), ("layers.1", "mxfp8_block_scaling")]
    assert again["products"] == plain["products"] == 9
    assert [t for t in again["trace"] if t.phase != "recompute"] == list(plain["trace"])


def test_leading_dimensions_are_flattened_and_restored() -> None:
    provider, model = made(1)
    x = batch().detach().reshape(4, 16, 128)
    with provider.autocast(recipe=provider.recipe(CURRENT)):
        deep, flat = model.layers[0](x), model.layers[0](x.reshape(64, 128))
    assert deep.shape == (4, 16, 128)
    assert torch.equal(deep.reshape(64, 128), flat)


def test_one_claim_in_an_outermost_region_and_none_is_given_back() -> None:
    provider, _ = made(1)
    ask = provider.features["first_module"]
    assert ask() is False
    with provider.autocast(recipe=provider.recipe(CURRENT)):
        with provider.autocast(enabled=False):
            assert [ask(), ask()] == [True, False]
        assert ask() is False
    with provider.autocast(recipe=provider.recipe(CURRENT)):
        pass
    assert ask() is False  # an unclaimed flag goes with its region


def test_other_features_are_what_their_names_say() -> None:
    provider, _ = made(1)
    assert provider.features["support_check"]("nvfp4_block_scaling") == (True, "")
    assert provider.features["checkpoint"](lambda a, b: (a, b), 1, 2, use_reentrant=False) == (1, 2)
    memories = provider.run.memories
    provider.features["reset_state"]()
    assert provider.run.memories is not memories


class Gain(torch.nn.Module):
    """A gain that bfloat16 products can't hold."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * (1 + 2.0**-7)


def test_a_computed_weight_is_rounded_to_the_programs_dtype_and_passes_its_gradient_on() -> None:
    provider, model = made(1)
    parametrize.register_parametrization(model.layers[0], "weight", Gain())
    original = dict(model.named_parameters())["layers.0.parametrizations.weight.original"]
    x = batch().to(torch.float64)
    provider.begin_step()
    y = model.layers[0](x)  # in no region: a plain product
    computed = original.detach() * (1 + 2.0**-7)
    assert torch.equal(y.detach(), round_to(x @ round_to(computed, BF16).t(), BF16))
    assert not torch.equal(y.detach(), round_to(x @ computed.t(), BF16))
    with provider.backward_pass(y, torch.ones_like(y)):
        (grad,) = torch.autograd.grad(y, [original], torch.ones_like(y))
    assert torch.equal(grad, round_to(torch.ones_like(y).t() @ x, BF16) * (1 + 2.0**-7))
