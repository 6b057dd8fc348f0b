"""The provider over a Transformer Engine that runs on the CPU: layer, tap, state, graphs, and what the judge says."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from harness import torch_compat
from harness.judge.calibrate import observe_eager
from harness.judge.numerics import judge_numerics
from harness.observe.state import diff
from harness.plan.ids import cell_id, inner_of
from harness.providers import te_operands, te_recipes, te_stack
from harness.providers.protocol import Operand, TapRecord
from harness.providers.te_key import TERecipeKey
from harness.providers.transformer_engine import TransformerEngineProvider
from harness.run.execute import execute_cell
from harness.types import Axes, Cell, Evidence, Spec, Verdict
from tests.support.te import forget, install

CURRENT, BLOCK = Spec("float8_current_scaling"), Spec("float8_block_scaling")
DELAYED = Spec("delayed_scaling", (("amax_history_len", 4),))
CPU = torch.device("cpu")


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[TransformerEngineProvider]:
    install(monkeypatch, tmp_path)
    made = TransformerEngineProvider()
    made.reset()
    torch._dynamo.reset()
    yield made
    torch._dynamo.reset()
    forget()


def layer(provider: TransformerEngineProvider, bias: bool = True) -> torch.nn.Module:
    torch.manual_seed(0)
    return provider.linear(256, 128, bias=bias, dtype=torch.bfloat16, device=CPU)


def batch() -> torch.Tensor:
    return torch.randn(128, 256, generator=torch.Generator().manual_seed(1)).bfloat16().requires_grad_()


def step(provider: TransformerEngineProvider, module: torch.nn.Module, spec: Spec, x: torch.Tensor) -> torch.Tensor:
    with provider.autocast(enabled=True, recipe=provider.recipe(spec)):
        y: torch.Tensor = module(x)
    torch.autograd.backward(y, torch.full_like(y, 0.5))
    return y


# ---- numerics: what the tap shows is judged by the oracle ----------------------------------------------------------


@pytest.mark.parametrize("data", ["normal", "positive", "heavy_tailed"])
@pytest.mark.parametrize("nesting", ["nested", "sequential"])
@pytest.mark.parametrize("recipe", [CURRENT, BLOCK, DELAYED], ids=lambda r: r.name)
def test_an_honest_library_has_no_finding(
    provider: TransformerEngineProvider, recipe: Spec, nesting: str, data: str
) -> None:
    axes = Axes("toy_linear", Spec("transformer_engine"), recipe, "sm90", nesting=nesting, data=data)
    verdict = judge_numerics(observe_eager(provider, axes, CPU), axes)
    assert verdict.findings == ()
    assert {"numerics.scales", "numerics.codes", "numerics.kernel"} <= set(verdict.checks)


def faulty(name: str) -> Any:
    """A quantizer of the fake library with one fault."""
    tensors = te_stack.module("pytorch.tensors")
    encode_scale, encode = tensors._encode_scale, tensors._encode
    return {
        "scale x8": ("_encode_scale", lambda *args: encode_scale(*args) / 8),
        "not a power of two": ("_encode_scale", lambda amax, top, power_2, eps: encode_scale(amax, top, False, eps)),
        "codes off by one": ("_encode", lambda x, scale, dtype: encode(x, scale, dtype) ^ 1),
    }[name]


@pytest.mark.parametrize(
    ("recipe", "fault", "check"),
    [
        (CURRENT, "scale x8", "numerics.scales"),
        (BLOCK, "not a power of two", "numerics.scales"),
        (DELAYED, "codes off by one", "numerics.codes"),
        (BLOCK, "codes off by one", "numerics.codes"),
    ],
)
def test_a_fault_of_the_librarys_quantizers_is_found(
    provider: TransformerEngineProvider, monkeypatch: pytest.MonkeyPatch, recipe: Spec, fault: str, check: str
) -> None:
    monkeypatch.setattr(te_stack.module("pytorch.tensors"), *faulty(fault))
    axes = Axes("toy_linear", Spec("transformer_engine"), recipe, "sm90")
    assert check in {f.check for f in judge_numerics(observe_eager(provider, axes, CPU), axes).findings}


# ---- the tap -------------------------------------------------------------------------------------------------------


def test_the_tap_shows_three_products_and_who_asked_for_fast_accumulation(provider: TransformerEngineProvider) -> None:
    module = layer(provider)
    with provider.tap() as records:
        step(provider, module, CURRENT, batch())
        step(provider, module, BLOCK, batch())
    seen = [(r.recipe, r.product, r.phase, r.fast_accumulation) for r in records]
    assert seen == [
        (CURRENT.label, "fprop", "forward", True),
        (CURRENT.label, "dgrad", "backward", False),
        (CURRENT.label, "wgrad", "backward", False),
        (BLOCK.label, "fprop", "forward", False),  # general_gemm insists on precise accumulation
        (BLOCK.label, "dgrad", "backward", False),
        (BLOCK.label, "wgrad", "backward", False),
    ]
    assert {r.weight_ptr for r in records} == {module.weight.data_ptr()}


def operands(records: list[TapRecord]) -> list[Operand]:
    return [operand for record in records for operand in (record.a, record.b)]


def test_operands_are_reduction_last(provider: TransformerEngineProvider) -> None:
    with provider.tap() as records:
        step(provider, layer(provider), BLOCK, batch())
    assert [(o.role, o.format, o.block, tuple(o.codes.shape), tuple(o.scale.shape)) for o in operands(records)] == [
        ("input", "e4m3", (1, 128), (128, 256), (128, 2)),
        ("weight", "e4m3", (128, 128), (128, 256), (1, 2)),
        ("grad_output", "e4m3", (1, 128), (128, 128), (128, 1)),
        ("weight", "e4m3", (128, 128), (256, 128), (2, 1)),
        ("grad_output", "e4m3", (1, 128), (128, 128), (128, 1)),
        ("input", "e4m3", (1, 128), (256, 128), (256, 1)),
    ]
    assert all(o.source.shape == o.codes.shape for o in operands(records))


def test_nothing_is_recorded_outside_and_the_library_is_as_it_was(provider: TransformerEngineProvider) -> None:
    module, basic_linear = layer(provider), te_stack.module("pytorch.ops.basic.basic_linear")
    original = basic_linear.general_gemm
    with provider.tap() as records:
        assert basic_linear.general_gemm is not original
        module(batch())  # no region: bfloat16
    step(provider, module, CURRENT, batch())
    assert records == []
    assert basic_linear.general_gemm is original


def test_a_layout_that_the_tap_does_not_know_is_an_error() -> None:
    source = te_operands.Source("input", torch.zeros(1))
    strange = type("Float6Tensor", (), {})()
    with pytest.raises(RuntimeError, match="was given a Float6Tensor: its layout is not known"):
        te_operands.read(strange, "rowwise", source)
    assert te_operands.read(torch.zeros(2, 2), "rowwise", source) is None
    swizzled = type("MXFP8TensorStorage", (), {"_with_gemm_swizzled_scales": True})()
    with pytest.raises(RuntimeError, match="in the GEMM's own order"):
        te_operands.read(swizzled, "rowwise", source)


# ---- compiled ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_nested_regions_compile_into_one_graph_and_equal_eager(
    provider: TransformerEngineProvider, backend: str
) -> None:
    outer, inner = (provider.linear(256, 256, bias=True, dtype=torch.bfloat16, device=CPU) for _ in range(2))
    autocast = provider.autocast

    def forward(recipes: tuple[Any, Any], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = outer(x)
            with autocast(enabled=True, recipe=recipes[1]):
                x = inner(x)
            y: torch.Tensor = outer(x)
        return y

    results = []
    for function in (forward, torch.compile(forward, backend=backend, fullgraph=True)):
        x = batch()
        y = function((provider.recipe(CURRENT), provider.recipe(BLOCK)), x)
        torch.autograd.backward(y, torch.ones_like(y))
        assert x.grad is not None
        results.append((y.detach(), x.grad))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_an_operator_is_given_the_recipe_and_never_asks_the_state(provider: TransformerEngineProvider) -> None:
    recipe = provider.recipe(CURRENT)
    x, weight = batch().detach(), torch.randn(128, 256, dtype=torch.bfloat16)
    assert not te_stack.module("pytorch.quantization").FP8GlobalStateManager.is_fp8_enabled()
    with provider.tap() as records:
        torch.ops.fp8te.linear(x, weight, TERecipeKey(te_recipes.text_of(recipe)))
    assert [r.recipe for r in records] == [CURRENT.label]
    with pytest.raises(RuntimeError, match="no provider made"):
        torch.ops.fp8te.linear(x, weight, TERecipeKey("a recipe of nobody"))


def test_an_operator_tells_its_product_and_recipe_where_nothing_executes(provider: TransformerEngineProvider) -> None:
    seen: list[tuple[str, str] | None] = []
    with torch_compat.fake_tensor_mode(lambda op, args: seen.append(provider.product_of(op, args))):
        step(provider, layer(provider), BLOCK, batch())
    assert [told for told in seen if told is not None] == [(name, BLOCK.label) for name in ("fprop", "dgrad", "wgrad")]


def test_delayed_scaling_is_refused_with_fullgraph_and_runs_eagerly_without(
    provider: TransformerEngineProvider,
) -> None:
    module, autocast = layer(provider), provider.autocast

    def forward(recipe: Any, x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipe):
            y: torch.Tensor = module(x)
        return y

    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(forward, backend="eager", fullgraph=True)(provider.recipe(DELAYED), batch())
    with provider.tap() as records:
        torch.compile(forward, backend="eager")(provider.recipe(DELAYED), batch())
    assert [(r.recipe, r.product) for r in records] == [(DELAYED.label, "fprop")]


def test_dynamo_keeps_out_of_operators_where_the_frame_around_them_fell_back(
    provider: TransformerEngineProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It compiles every frame below a frame that it gave up, and can't look into an opaque key (torch 2.11)."""
    module, autocast = layer(provider), provider.autocast
    linear, traced = te_stack.module("pytorch.ops.basic.basic_linear").BasicLinear, []
    forward_of = linear._functional_forward

    def watched(**arguments: Any) -> Any:
        traced.append(torch.compiler.is_compiling())
        return forward_of(**arguments)

    monkeypatch.setattr(linear, "_functional_forward", staticmethod(watched))

    def forward(recipes: tuple[Any, Any], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            y: torch.Tensor = module(x)
            with autocast(enabled=True, recipe=recipes[1]):
                z: torch.Tensor = module(x)
        return y + z

    with provider.tap() as records:
        recipes = provider.recipe(DELAYED), provider.recipe(CURRENT)
        torch.compile(forward, backend="eager")(recipes, batch())
    assert [r.recipe for r in records] == [DELAYED.label, CURRENT.label]
    assert traced == [False, False]


# ---- state ---------------------------------------------------------------------------------------------------------


def changed(before: Mapping[str, Any], provider: TransformerEngineProvider) -> set[str]:
    return {difference.key for difference in diff(before, provider.snapshot(), "")}


def test_a_region_leaves_the_state_as_it_was(provider: TransformerEngineProvider) -> None:
    before = provider.snapshot()
    step(provider, layer(provider), CURRENT, batch())
    assert changed(before, provider) == set()
    assert before["state.registers"] == "consistent"


def test_an_open_region_shows_and_reset_ends_it_in_place(provider: TransformerEngineProvider) -> None:
    before = provider.snapshot()
    region = provider.autocast(enabled=True, recipe=provider.recipe(CURRENT))
    region.__enter__()
    assert changed(before, provider) >= {"state.fp8_enabled", "state.autocast_depth"}
    provider.reset()
    assert changed(before, provider) == set()


def test_reset_forgets_the_scales_of_delayed_scaling_in_place(provider: TransformerEngineProvider) -> None:
    before = provider.snapshot()
    state = te_stack.module("pytorch.quantization").FP8GlobalStateManager.quantization_state
    step(provider, layer(provider), DELAYED, batch())
    assert len(state.global_scale_buffer) == 2
    assert state.global_scale_buffer[next(iter(state.global_scale_buffer))][0][0] != 1.0
    assert provider.snapshot()["state.registers"] == "consistent"
    provider.reset()
    assert state.global_scale_buffer == {}
    assert changed(before, provider) == set()


def test_another_singleton_or_container_shows(provider: TransformerEngineProvider) -> None:
    before = provider.snapshot()
    manager = te_stack.module("pytorch.quantization").FP8GlobalStateManager
    manager.quantization_state.global_scale_buffer = {}
    assert changed(before, provider) == {"state.global_scale_buffer.id"}
    manager.quantization_state = type(manager.quantization_state)()
    assert "state.id" in changed(before, provider)


def test_registers_that_do_not_fit_show(provider: TransformerEngineProvider) -> None:
    step(provider, layer(provider), DELAYED, batch())
    state = te_stack.module("pytorch.quantization").FP8GlobalStateManager.quantization_state
    held = dict(state.autocast_arguments)
    state.autocast_arguments.clear()
    assert "no recipe is registered for" in provider.snapshot()["state.registers"]
    state.autocast_arguments.update(held)
    next(iter(state.global_scale_buffer.values())).pop()
    assert "global_scale_buffer" in provider.snapshot()["state.registers"]


# ---- cells ---------------------------------------------------------------------------------------------------------


def test_a_recipe_that_the_library_has_not_is_skipped_with_that_reason(provider: TransformerEngineProvider) -> None:
    axes = Axes("toy_linear", Spec("transformer_engine"), Spec("float8_rowwise_scaling"), "sm90")
    result = execute_cell(Cell(cell_id(axes), axes, inner_of(axes)))
    assert (result.verdict, result.evidence) == (Verdict.SKIP, Evidence.NONE)
    assert result.reason == "Transformer Engine has no recipe for float8_rowwise_scaling"


def test_a_cell_whose_inner_recipe_is_not_there_is_skipped_too(provider: TransformerEngineProvider) -> None:
    axes = Axes("toy_linear", Spec("transformer_engine"), CURRENT, "sm90", nesting="nested")
    result = execute_cell(Cell(cell_id(axes), axes, Spec("float8_rowwise_scaling")))
    assert result.verdict is Verdict.SKIP
    assert result.reason.endswith("no recipe for float8_rowwise_scaling")


def test_a_refusal_on_entry_is_a_negative_cell(
    provider: TransformerEngineProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    axes = Axes("toy_linear", Spec("transformer_engine"), Spec("mxfp8_block_scaling"), "sm90")
    good = execute_cell(Cell(cell_id(axes), axes, None))
    assert (good.verdict, good.evidence, good.reason) == (
        Verdict.PASS,
        Evidence.NEGATIVE,
        "refused on entry as documented",
    )
    quantization = te_stack.module("pytorch.quantization")
    monkeypatch.setattr(quantization, "check_recipe_support", lambda recipe: None)
    bad = execute_cell(Cell(cell_id(axes), axes, None))
    assert bad.verdict is Verdict.FAIL
    assert {f.check for f in bad.findings} == {"error.negative"}


def test_a_refusal_after_the_state_was_written_is_found(
    provider: TransformerEngineProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transformer Engine 2.20.2 does this for NVFP4 on sm_90 (docs/findings.md, finding 1)."""
    quantization = te_stack.module("pytorch.quantization")
    check, enter = quantization.check_recipe_support, quantization.autocast.__enter__

    def late(self: Any) -> None:
        monkeypatch.setattr(quantization, "check_recipe_support", lambda recipe: None)
        enter(self)
        monkeypatch.setattr(quantization, "check_recipe_support", check)
        if self.enabled:
            assert not isinstance(self.recipe, quantization.NVFP4BlockScaling), "no NVFP4 here"

    monkeypatch.setattr(quantization.autocast, "__enter__", late)
    axes = Axes("toy_linear", Spec("transformer_engine"), Spec("nvfp4_block_scaling"), "sm90")
    result = execute_cell(Cell(cell_id(axes), axes, None))
    assert result.verdict is Verdict.FAIL
    assert {"error.negative", "state.unchanged"} <= {f.check for f in result.findings}
    assert any("autocast_depth" in f.expected for f in result.findings)


def test_a_record_without_the_field_is_not_fast() -> None:
    fields = {field.name: field.default for field in dataclasses.fields(TapRecord)}
    assert fields["fast_accumulation"] is False


def test_a_layer_under_torchs_autocast_computes_in_its_dtype(provider: TransformerEngineProvider) -> None:
    made = provider.linear(256, 128, bias=True, dtype=torch.float32, device=CPU)
    x = batch().detach().float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16), provider.autocast(recipe=provider.recipe(CURRENT)):
        y = made(x)
    assert y.dtype is torch.bfloat16
    torch.autograd.backward(y, torch.ones_like(y))
    assert x.grad is not None
    assert {x.grad.dtype, *(p.grad.dtype for p in made.parameters() if p.grad is not None)} == {torch.float32}


def test_the_librarys_checkpoint_is_offered_where_it_has_one(
    provider: TransformerEngineProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(te_stack.module("pytorch"), "checkpoint", lambda function, *args, **kw: calls.append(kw))
    provider.features["checkpoint"](torch.relu, batch())
    assert calls == [{"use_reentrant": False}]
    monkeypatch.delattr(te_stack.module("pytorch"), "checkpoint")
    assert "checkpoint" not in provider.features


# ---- features beyond the protocol ----------------------------------------------------------------------------------


def test_features_are_the_librarys_own_functions(provider: TransformerEngineProvider) -> None:
    ask, check = provider.features["first_module"], provider.features["support_check"]
    with provider.autocast(enabled=True, recipe=provider.recipe(CURRENT)):
        assert [ask(), ask()] == [True, False]
    assert provider.features["layers_claim_first"]("delayed_scaling")
    assert not provider.features["layers_claim_first"]("float8_current_scaling")
    assert "answers_follow_arch" not in provider.features
    with provider.autocast(enabled=True, recipe=provider.recipe(Spec("float8_current_scaling"))):
        assert provider.features["region_answers"]() == (True, False, None)
    assert provider.features["region_answers"]() == (False, False, None)
    with provider.pretend("sm90"):
        assert check("float8_current_scaling")[0] is True
        available, reason = check("mxfp8_block_scaling")
    assert (available, bool(reason)) == (False, True)


def test_how_often_a_region_can_be_entered_follows_from_what_autocast_is(
    provider: TransformerEngineProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "reusable_autocast" in provider.features
    assert "decorating_autocast" not in provider.features
    monkeypatch.setattr(te_stack.module("pytorch"), "autocast", contextmanager(lambda **given: iter([None])))
    assert "decorating_autocast" in provider.features
    assert "reusable_autocast" not in provider.features
