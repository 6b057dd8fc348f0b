"""The reference provider: protocol, tap, snapshot, reset, GEMM records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from harness import fp8, torch_compat
from harness.fp8 import formats, kernels, support
from harness.fp8.errors import UnsupportedRecipeError
from harness.providers.protocol import TapRecord
from harness.providers.reference import ReferenceProvider
from harness.providers.reference_gemms import classify
from harness.torch_compat import ProfiledOp
from harness.types import RECIPES, Spec
from tests.support.fp8 import clean_fp8, counted

__all__ = ["clean_fp8"]
pytestmark = pytest.mark.usefixtures("clean_fp8")

REFUSED = ("delayed_scaling", True)  # under torch.compile
SHAPES = {"x": (256, 128), "w": (384, 128), "g": (256, 384)}


@pytest.fixture
def provider() -> Iterator[ReferenceProvider]:
    yield ReferenceProvider()
    support.set_emulate(True)


def linear(provider: ReferenceProvider, bias: bool = True) -> torch.nn.Module:
    return provider.linear(128, 384, bias=bias, dtype=torch.bfloat16, device=torch.device("cpu"))


def step(provider: ReferenceProvider, layer: Any, spec: Spec, forward: Any = None) -> torch.Tensor:
    x = torch.randn(SHAPES["x"], dtype=torch.bfloat16, requires_grad=True)

    def plain(x: torch.Tensor, recipe: Any) -> torch.Tensor:
        with provider.autocast(recipe=recipe):
            return layer(x)  # type: ignore[no-any-return]

    y = (forward or plain)(x, provider.recipe(spec))
    y.sum().backward()
    return y  # type: ignore[no-any-return]


def test_recipes_are_equal_and_new(provider: ReferenceProvider) -> None:
    for name in RECIPES:
        first, second = provider.recipe(Spec(name)), provider.recipe(Spec(name))
        assert first == second
        assert first is not second
    with pytest.raises(ValueError, match="no field"):
        provider.recipe(Spec("delayed_scaling", (("nope", 1),)))


def test_autocast_is_a_plain_function_that_dynamo_inlines(provider: ReferenceProvider) -> None:
    assert provider.autocast is fp8.autocast
    layer = linear(provider)

    def forward(x: torch.Tensor, recipe: Any) -> torch.Tensor:
        with provider.autocast(recipe=recipe):
            return layer(x)  # type: ignore[no-any-return]

    compiled, counter = counted(forward)
    for _ in range(3):
        step(provider, layer, Spec("float8_current_scaling"), compiled)
    assert counter.frame_count == 1


@pytest.mark.parametrize("name", RECIPES)
def test_the_tap_has_the_layout_of_the_protocol(provider: ReferenceProvider, name: str) -> None:
    layer = linear(provider, bias=False)
    with provider.tap() as records:
        output = step(provider, layer, Spec(name))
    fprop, dgrad, wgrad = records
    assert [r.product for r in records] == ["fprop", "dgrad", "wgrad"]
    assert {r.recipe for r in records} == {name}
    assert {r.weight_ptr for r in records} == {layer.weight.data_ptr()}  # type: ignore[operator]
    shapes = [(tuple(r.a.codes.shape), tuple(r.b.codes.shape), tuple(r.output.shape)) for r in records]
    m, k, n = 256, 128, 384
    assert shapes == [((m, k), (n, k), (m, n)), ((m, n), (k, n), (m, k)), ((n, m), (k, m), (n, k))]
    assert torch.equal(fprop.output, output)
    assert [(r.a.role, r.b.role) for r in (dgrad, wgrad)] == [("grad_output", "weight"), ("grad_output", "input")]
    for record in records:
        for operand in (record.a, record.b):
            rows, reduced = operand.codes.shape
            assert operand.codes.dtype == torch.uint8
            assert operand.source.shape == (rows, reduced)
            assert operand.source.untyped_storage().nbytes() == operand.source.numel() * 2, "not its own storage"
            assert operand.scale.dtype == torch.float32
            assert operand.scale.shape == (-(-rows // operand.block[0]), -(-reduced // operand.block[1]))
            assert (operand.global_scale is not None) == (name == "nvfp4_block_scaling")


@pytest.mark.parametrize("name", RECIPES)
def test_the_tapped_operands_multiply_to_the_tapped_output(provider: ReferenceProvider, name: str) -> None:
    with provider.tap() as records:
        step(provider, linear(provider), Spec(name))
    for record in records:
        a, b = decoded(record.a), decoded(record.b)
        exact, magnitude = a @ b.t(), a.abs() @ b.abs().t()
        bound = (a.shape[1] + 4) * 2.0**-24 * magnitude + 2.0**-8 * exact.abs()
        assert ((record.output.double() - exact).abs() <= bound).all()


def decoded(operand: Any) -> torch.Tensor:
    dtypes = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
    if operand.format == "e2m1":
        values = formats.e2m1_decode(operand.codes)
    else:
        values = operand.codes.view(dtypes[operand.format]).float()
    scale = operand.scale.double().repeat_interleave(operand.block[0], 0).repeat_interleave(operand.block[1], 1)
    whole = 1.0 if operand.global_scale is None else operand.global_scale.double()
    return values.double() * scale * whole


def test_the_tap_records_what_ran_not_a_plan(provider: ReferenceProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    library = torch.library.Library("fp8ref", "IMPL")
    library.impl(
        "product_tensorwise", lambda a, b, *rest: torch.full((a.shape[0], b.shape[0]), 7.0, dtype=rest[-1]), "CPU"
    )
    try:
        with provider.tap() as records, torch.no_grad():
            layer, x = linear(provider), torch.randn(SHAPES["x"], dtype=torch.bfloat16)
            with provider.autocast(recipe=provider.recipe(Spec("float8_current_scaling"))):
                layer(x)
        assert (records[0].output == 7.0).all()
    finally:
        library._destroy()


def test_the_tap_is_silent_outside_and_records_compiled_code(provider: ReferenceProvider) -> None:
    layer = linear(provider)

    def forward(x: torch.Tensor, recipe: Any) -> torch.Tensor:
        with provider.autocast(recipe=recipe):
            return layer(x)  # type: ignore[no-any-return]

    compiled, _ = counted(forward)
    step(provider, layer, Spec("mxfp8_block_scaling"), compiled)
    with provider.tap() as records:
        assert provider.snapshot()["tap.active"] is True
        step(provider, layer, Spec("mxfp8_block_scaling"), compiled)
    step(provider, layer, Spec("mxfp8_block_scaling"), compiled)
    assert len(records) == 3
    assert provider.snapshot()["tap.active"] is False


def test_labels_are_those_of_the_spec(provider: ReferenceProvider) -> None:
    written_out = Spec("float8_current_scaling", (("power_2_scale", False),))
    changed = Spec("float8_current_scaling", (("fp8_format", "E4M3"), ("power_2_scale", True)))

    def labels(spec: Spec) -> set[str]:
        with provider.tap() as records:
            step(provider, linear(provider), spec)
        return {record.recipe for record in records}

    assert labels(written_out) == {"float8_current_scaling(power_2_scale=false)"}
    assert labels(changed) == {"float8_current_scaling(fp8_format=E4M3,power_2_scale=true)"}
    assert labels(Spec("float8_current_scaling")) == {"float8_current_scaling"}


def test_a_recipe_that_the_provider_did_not_make_has_its_canonical_label(provider: ReferenceProvider) -> None:
    layer, x = linear(provider), torch.randn(SHAPES["x"], dtype=torch.bfloat16)
    with provider.tap() as records, provider.autocast(recipe=fp8.MXFP8BlockScaling(scale_rounding="floor")):
        layer(x)
    assert records[0].recipe == "mxfp8_block_scaling(scale_rounding=floor)"


@pytest.mark.parametrize("name", RECIPES)
def test_a_snapshot_is_equal_after_a_step(provider: ReferenceProvider, name: str) -> None:
    layer = linear(provider)
    before = provider.snapshot()
    step(provider, layer, Spec(name))
    assert provider.snapshot() == before


def test_a_snapshot_sees_every_field(provider: ReferenceProvider) -> None:
    clean = provider.snapshot()
    state = fp8.FP8GlobalStateManager.quantization_state
    changes: dict[str, Any] = {
        "fp8_enabled": True,
        "fp8_recipe": fp8.MXFP8BlockScaling(),
        "fp8_distributed_group": "group",
        "autocast_depth": 1,
        "autocast_arguments": {},
        "skip_fp8_weight_update_tensor": {"cpu": torch.zeros(1)},
    }
    for name, value in changes.items():
        original = getattr(state, name)
        setattr(state, name, value)
        assert provider.snapshot() != clean, name
        setattr(state, name, original)
    state.global_amax_buffer["forward"] = [torch.ones(1)]
    one = provider.snapshot()
    state.global_amax_buffer["forward"][0].fill_(2.0)
    assert one != clean
    assert provider.snapshot() != one, "tensor values count"
    provider.reset()
    assert provider.snapshot() == clean


def test_reset_is_in_place(provider: ReferenceProvider) -> None:
    fp8.FP8GlobalStateManager.set_skip_fp8_weight_update_tensor(True, "cpu")
    before = {key: value for key, value in provider.snapshot().items() if key.endswith(".id")}
    fp8.FP8GlobalStateManager.quantization_state.fp8_enabled = True
    provider.reset()
    after = provider.snapshot()
    assert {key: value for key, value in after.items() if key.endswith(".id")} == before
    assert len(before) >= 8
    assert after["state.fp8_enabled"] is False


def test_emulate_is_put_in_force_by_use(provider: ReferenceProvider) -> None:
    strict = ReferenceProvider(emulate=False)
    assert strict.settings == {"emulate": False, "rehearse": False}
    assert strict.supports(Spec("mxfp8_block_scaling"), "cpu").level == "unsupported"
    assert strict.supports(Spec("mxfp8_block_scaling"), "cpu").error == "UnsupportedRecipeError"
    assert provider.supports(Spec("mxfp8_block_scaling"), "cpu").level == "emulated"
    step(provider, linear(provider), Spec("mxfp8_block_scaling"))
    layer = linear(strict)
    with pytest.raises(UnsupportedRecipeError, match="emulation is off"):
        step(strict, layer, Spec("mxfp8_block_scaling"))
    step(provider, layer, Spec("mxfp8_block_scaling"))


@pytest.mark.parametrize(
    ("spec", "arch", "emulate"), [("float8_block_scaling", "sm89", True), ("nvfp4_block_scaling", "sm90", False)]
)
def test_a_negative_cell(spec: str, arch: str, emulate: bool) -> None:
    provider = ReferenceProvider(emulate=emulate)
    with provider.pretend(arch):
        belief = provider.supports(Spec(spec), arch)
        assert belief.level == "unsupported"
        before = provider.snapshot()
        with pytest.raises(RuntimeError, match=re.escape(belief.reason)) as caught:
            provider.autocast(recipe=provider.recipe(Spec(spec))).__enter__()
        assert belief.error in [cls.__name__ for cls in type(caught.value).__mro__]
        assert provider.snapshot() == before
        step(provider, linear(provider), Spec("float8_current_scaling"))
    support.set_emulate(True)


def test_pretend_traces_under_fake_tensors_and_runs_nothing(provider: ReferenceProvider) -> None:
    with provider.pretend("sm100"), torch_compat.fake_tensor_mode(), provider.tap() as records:
        assert provider.snapshot()["support.arch"] == "sm100"
        layer = linear(provider)

        def forward(x: torch.Tensor, recipe: Any) -> torch.Tensor:
            with provider.autocast(recipe=recipe):
                return layer(x)  # type: ignore[no-any-return]

        compiled, counter = counted(forward)
        step(provider, layer, Spec("nvfp4_block_scaling"), compiled)
    assert counter.frame_count == 1
    assert records == []
    assert provider.snapshot()["support.arch"] == ""


def test_an_operator_tells_its_product_and_recipe_where_nothing_executes(provider: ReferenceProvider) -> None:
    spec = Spec("mxfp8_block_scaling", (("scale_rounding", "floor"),))
    seen: list[tuple[str, str] | None] = []
    with torch_compat.fake_tensor_mode(lambda op, args: seen.append(provider.product_of(op, args))):
        layer = provider.linear(128, 128, bias=True, dtype=torch.bfloat16, device=torch.device("cpu"))
        with provider.autocast(enabled=True, recipe=provider.recipe(spec)):
            y = layer(torch.ones(128, 128, dtype=torch.bfloat16, requires_grad=True))
        torch.autograd.backward(y, torch.ones_like(y))
    assert [told for told in seen if told is not None] == [(name, spec.label) for name in ("fprop", "dgrad", "wgrad")]


def test_a_snapshot_under_fake_tensors_reads_the_real_values(provider: ReferenceProvider) -> None:
    fp8.FP8GlobalStateManager.set_skip_fp8_weight_update_tensor(False, "cpu")
    outside = provider.snapshot()
    with torch_compat.fake_tensor_mode():
        assert provider.snapshot() == outside
        fp8.FP8GlobalStateManager.quantization_state.global_amax_buffer["x"] = [torch.ones(2)]
        assert ("fake", "torch.float32", (2,)) in provider.snapshot()["state.global_amax_buffer"][0][1]
    fp8.FP8GlobalStateManager.reset()


def profiled(provider: ReferenceProvider, forward: Any) -> Counter[tuple[str, str, str]]:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as trace:
        forward()
    return Counter((record.kind, record.a_dtype, record.b_dtype) for record in provider.gemms(trace))


@pytest.mark.parametrize(
    ("name", "compile_it"),
    [(name, compile_it) for name in RECIPES for compile_it in (False, True) if (name, compile_it) != REFUSED],
)
def test_gemms_counts_logical_products_by_what_ran(provider: ReferenceProvider, name: str, compile_it: bool) -> None:
    model = [provider.linear(128, 128, bias=True, dtype=torch.bfloat16, device=torch.device("cpu")) for _ in range(3)]

    def forward(x: torch.Tensor, recipe: Any) -> torch.Tensor:
        with provider.autocast(recipe=recipe):
            x = model[0](x)
            with provider.autocast(enabled=False):
                x = model[1](x)
            return model[2](x)  # type: ignore[no-any-return]

    run = counted(forward)[0] if compile_it else forward

    def one_step() -> None:
        x = torch.randn(128, 128, dtype=torch.bfloat16, requires_grad=True)
        run(x, provider.recipe(Spec(name))).sum().backward()

    one_step()
    seen = profiled(provider, one_step)
    kinds: Counter[str] = Counter()
    for (kind, _, _), count in seen.items():
        kinds[kind] += count
    emulated = name in ("mxfp8_block_scaling", "nvfp4_block_scaling")
    assert kinds == {"fp8_emulated" if emulated else "fp8_native": 6, "high_precision": 3}
    if name in ("delayed_scaling", "float8_current_scaling"):
        assert seen["fp8_native", "float8_e4m3fn", "float8_e4m3fn"] == 2
        assert seen["fp8_native", "float8_e5m2", "float8_e4m3fn"] == 4
    if name == "nvfp4_block_scaling":
        assert seen["fp8_emulated", "float4_e2m1fn_x2", "float4_e2m1fn_x2"] == 6
    if name in ("float8_block_scaling", "mxfp8_block_scaling"):
        assert {pair[1:] for pair in seen if pair[0].startswith("fp8")} == {("float8_e4m3fn", "float8_e4m3fn")}


def test_a_product_that_dequantises_is_not_native(provider: ReferenceProvider) -> None:
    library = torch.library.Library("fp8ref", "IMPL")
    library.impl("product_tensorwise", kernels.dequantized.product, "CPU")
    try:
        seen = profiled(provider, lambda: step(provider, linear(provider), Spec("float8_current_scaling")))
    finally:
        library._destroy()
    assert {kind for kind, _, _ in seen} == {"fp8_emulated"}


def ops(*names: tuple[str, tuple[str, ...], int]) -> list[ProfiledOp]:
    return [ProfiledOp(*item) for item in names]


FP8 = ("c10::Float8_e4m3fn", "c10::Float8_e4m3fn")
BF16 = ("c10::BFloat16", "c10::BFloat16")


@pytest.mark.parametrize(
    ("events", "kinds"),
    [
        (
            ops(("fp8ref::linear", BF16, -1), ("fp8ref::product_block", FP8, 0), ("aten::_scaled_mm", FP8, 1)),
            ["fp8_native"],
        ),
        (
            ops(("fp8ref::product_block", FP8, -1), ("aten::_scaled_mm", FP8, 0), ("aten::_scaled_mm_v2", FP8, 0)),
            ["fp8_native"],
        ),
        (
            ops(("fp8ref::product_block", FP8, -1), ("aten::_scaled_mm", FP8, 0), ("aten::mm", BF16, 0)),
            ["fp8_emulated"],
        ),
        (ops(("fp8ref::product_mxfp8", FP8, -1)), ["fp8_emulated"]),
        (ops(("fp8ref::product_tensorwise", FP8, -1), ("aten::_scaled_mm", BF16, 0)), ["fp8_emulated"]),
        (ops(("fp8ref::product_tensorwise", FP8, -1), ("other::gemm", FP8, 0)), ["fp8_emulated"]),
        (ops(("aten::_scaled_mm", FP8, -1)), ["unknown"]),
        (ops(("fp8ref::linear", BF16, -1), ("aten::mm", BF16, 0)), ["high_precision"]),
        (ops(("aten::linear", BF16, -1), ("aten::matmul", BF16, 0), ("aten::mm", BF16, 1)), ["high_precision"]),
        (
            ops(("aten::linear", BF16, -1), ("aten::matmul", BF16, 0), ("aten::linear", BF16, -1)),
            ["high_precision"] * 2,
        ),
        (ops(("te::fp8_gemm", FP8, -1)), ["unknown"]),
        (ops(("triton_tem_fused_mm_0", (), -1)), ["unknown"]),
        (ops(("triton_poi_fused_mm_0", (), -1), ("GeneratedBackwardFor_fp8ref_linear_default", BF16, -1)), []),
        (ops(("aten::add", BF16, -1), ("aten::linspace", (), -1), ("MmBackward0", (), -1), ("aten::sum", (), -1)), []),
        (ops(("autograd::engine::evaluate_function: linear", (), -1), ("aten::convolution", BF16, 0)), ["unknown"]),
    ],
)
def test_classification(events: list[ProfiledOp], kinds: list[str]) -> None:
    assert [record.kind for record in classify(events)] == kinds


@pytest.mark.parametrize(
    ("events", "inside"),
    [
        (ops(("fp8ref::linear", BF16, -1), ("aten::mm", BF16, 0), ("fp8ref::product_block", FP8, 0)), "fp8ref::linear"),
        (ops(("fp8ref::dgrad", BF16, -1), ("aten::t", BF16, 0), ("other::gemm", BF16, 1)), "fp8ref::dgrad"),
        (ops(("aten::linear", BF16, -1), ("aten::mm", BF16, 0)), ""),
        (ops(("autograd::engine: fp8ref::linear", (), -1), ("aten::mm", BF16, 0)), ""),
        (ops(("fp8ref::linear", BF16, -1), ("fp8ref::product_block", FP8, 0), ("aten::mm", FP8, 1)), ""),
    ],
)
def test_a_gemm_beside_the_product_says_in_which_operator(events: list[ProfiledOp], inside: str) -> None:
    assert classify(events)[0].inside == inside


def test_operand_dtypes_of_addmm_skip_the_bias() -> None:
    (record,) = classify(ops(("aten::addmm", ("float", "c10::BFloat16", "c10::Half"), -1)))
    assert (record.a_dtype, record.b_dtype) == ("bfloat16", "float16")


def test_doctor_names_the_kernels(provider: ReferenceProvider) -> None:
    findings = provider.doctor()
    assert all(finding.ok for finding in findings)
    assert {"torch", "FP8 GEMM on the CPU"} <= {finding.topic for finding in findings}
    assert torch.__version__ in findings[0].text


def test_a_tap_record_is_the_protocols(provider: ReferenceProvider) -> None:
    with provider.tap() as records:
        step(provider, linear(provider), Spec("float8_rowwise_scaling"))
    assert all(isinstance(record, TapRecord) for record in records)
