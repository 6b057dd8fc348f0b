"""Faults on Transformer Engine: each does to the library's fake what it says and is mended afterwards; the plan refuses
those that break nothing of a provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.faults import FAULTS
from harness.faults.elsewhere import ELSEWHERE, ONLY_REFERENCE, works_on
from harness.faults.fault import Fault
from harness.faults.seams import by_provider, layer_of
from harness.plan.errors import MatrixErrors
from harness.plan.load import matrix_from_bytes
from harness.providers import te_ops, te_stack
from harness.providers.protocol import TapRecord
from harness.providers.reference import ReferenceProvider
from harness.providers.te_linear import TELinear
from harness.providers.transformer_engine import TransformerEngineProvider
from harness.registry import load
from harness.types import Spec
from tests.support.te import forget, install

CURRENT, BLOCK = Spec("float8_current_scaling"), Spec("float8_block_scaling")
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


def fault(name: str) -> Fault:
    found: Fault = load(FAULTS[name])
    return found


class Stepped:
    """One step of a layer without a bias: its result, its gradients, and what the tap saw of it."""

    def __init__(self, provider: Any, spec: Spec = CURRENT, *, tapped: bool = False) -> None:
        torch.manual_seed(0)
        module = provider.linear(256, 128, bias=False, dtype=torch.bfloat16, device=CPU)
        self.x = torch.randn(128, 256, generator=torch.Generator().manual_seed(1)).bfloat16().requires_grad_()
        self.records: list[TapRecord] = []
        if tapped:
            with provider.tap() as self.records:
                self._run(provider, module, spec)
        else:
            self._run(provider, module, spec)
        self.weight = module.weight.detach()

    def _run(self, provider: Any, module: Any, spec: Spec) -> None:
        with provider.autocast(enabled=True, recipe=provider.recipe(spec)):
            y = module(self.x)
        torch.autograd.backward(y, torch.full_like(y, 0.5))
        self.y, self.grad_x, self.grad_weight = y.detach(), self.x.grad, module.weight.grad

    def plain(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Result and gradients without FP8."""
        x, grad = self.x.detach(), torch.full_like(self.y, 0.5)
        return x @ self.weight.t(), grad @ self.weight, grad.t() @ x

    def results(self) -> tuple[Any, Any, Any]:
        return self.y, self.grad_x, self.grad_weight


def equal(first: tuple[Any, ...], second: tuple[Any, ...]) -> list[bool]:
    return [torch.equal(one, other) for one, other in zip(first, second, strict=True)]


def broken(name: str, provider: Any, **how: Any) -> Stepped:
    with fault(name).apply(provider) as changed:
        return Stepped(changed, **how)


# ---- products and tensors ------------------------------------------------------------------------------------------


def test_an_input_gradient_is_doubled_and_nothing_else(provider: TransformerEngineProvider) -> None:
    good, bad = Stepped(provider), broken("dgrad_doubled", provider)
    assert equal(bad.results(), good.results()) == [True, False, True]
    assert torch.equal(bad.grad_x, good.grad_x * 2)


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("bf16_products", [True, True, True]),
        ("planned_tap", [True, True, True]),
        ("bf16_backward", [False, True, True]),
    ],
)
def test_products_are_those_of_the_unquantised_operands(
    provider: TransformerEngineProvider, name: str, same: list[bool]
) -> None:
    bad = broken(name, provider, tapped=True)
    assert equal(bad.results(), bad.plain()) == same
    seen = {record.product for record in bad.records}
    assert seen == ({"fprop"} if name == "bf16_backward" else {"fprop", "dgrad", "wgrad"})
    honest = Stepped(provider)
    assert equal(honest.results(), honest.plain()) == [False, False, False]


def test_bf16_products_leave_the_librarys_gemms_out(
    provider: TransformerEngineProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    module = te_stack.module("pytorch.ops.basic.basic_linear")
    gemm = module.general_gemm
    monkeypatch.setattr(module, "general_gemm", lambda *args, **kw: (ran.append("gemm"), gemm(*args, **kw))[1])
    broken("bf16_products", provider)
    assert ran == []
    broken("planned_tap", provider)
    assert ran == ["gemm"] * 3


def test_results_are_right_while_somebody_listens(provider: TransformerEngineProvider) -> None:
    good = Stepped(provider)
    assert equal(broken("wrong_unwatched", provider, tapped=True).results(), good.results()) == [True] * 3
    assert all(bool(tensor.isnan().all()) for tensor in broken("wrong_unwatched", provider).results())


def test_the_first_call_is_right(provider: TransformerEngineProvider) -> None:
    good = Stepped(provider)
    for _ in range(2):  # what the fault remembers is forgotten
        with fault("wrong_from_second_call").apply(provider) as changed:
            first, second = Stepped(changed), Stepped(changed)
        assert equal(first.results(), good.results()) == [True] * 3
        assert torch.equal(second.y, good.y * 10)


@pytest.mark.parametrize("spec", [CURRENT, BLOCK], ids=lambda spec: spec.name)
def test_decode_scales_of_the_backward_are_doubled(provider: TransformerEngineProvider, spec: Spec) -> None:
    good, bad = Stepped(provider, spec, tapped=True), broken("scale_doubled", provider, spec=spec, tapped=True)
    for honest, record in zip(good.records, bad.records, strict=True):
        factor = 1 if record.product == "fprop" else 2
        assert torch.equal(record.a.scale, honest.a.scale * factor)
        assert torch.equal(record.a.codes, honest.a.codes)


# ---- regions -------------------------------------------------------------------------------------------------------


def test_a_left_region_stays_enabled(provider: TransformerEngineProvider) -> None:
    with fault("leaky_exit").apply(provider) as changed:
        with changed.autocast(enabled=True, recipe=provider.recipe(CURRENT)):
            pass
        assert provider.snapshot()["state.fp8_enabled"] is True
    assert provider.snapshot()["state.fp8_enabled"] is False


@pytest.mark.parametrize("raises", [True, False])
def test_an_exception_leaves_a_region_open(provider: TransformerEngineProvider, raises: bool) -> None:
    with fault("exit_skipped_on_exception").apply(provider) as changed:
        try:
            with changed.autocast(enabled=True, recipe=provider.recipe(CURRENT)):
                1 / (0 if raises else 1)
        except ZeroDivisionError:
            pass
        assert provider.snapshot()["state.autocast_depth"] == int(raises)
    assert provider.snapshot()["state.autocast_depth"] == 0


def test_an_inner_region_has_the_outer_recipe(provider: TransformerEngineProvider) -> None:
    outer, inner = provider.recipe(CURRENT), provider.recipe(BLOCK)
    state = te_stack.module("pytorch.quantization").FP8GlobalStateManager.quantization_state
    with fault("outer_recipe_inside").apply(provider) as changed:
        with changed.autocast(enabled=True, recipe=outer), changed.autocast(enabled=True, recipe=inner):
            assert state.fp8_recipe is outer
        with changed.autocast(enabled=True, recipe=inner):
            assert state.fp8_recipe is inner
    with provider.autocast(enabled=True, recipe=outer), provider.autocast(enabled=True, recipe=inner):
        assert state.fp8_recipe is inner


# ---- what torch.compile makes of it --------------------------------------------------------------------------------


def whole(provider: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """A region with a layer in it, compiled whole."""
    module = provider.linear(256, 128, bias=False, dtype=torch.bfloat16, device=CPU)
    recipe, autocast = provider.recipe(CURRENT), provider.autocast

    def forward(x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipe):
            return module(x)  # type: ignore[no-any-return]

    compiled: Callable[[torch.Tensor], torch.Tensor] = torch.compile(forward, backend="eager", fullgraph=True)
    return compiled


@pytest.mark.parametrize("name", ["print_in_linear", "layer_disabled", "disabled_setter"])
def test_nothing_is_compiled_whole(provider: TransformerEngineProvider, name: str) -> None:
    x = torch.ones(128, 256, dtype=torch.bfloat16)
    with fault(name).apply(provider) as changed, pytest.raises(Exception, match=r"print|skip|disable"):
        whole(changed)(x)
    provider.reset()
    assert whole(provider)(x).shape == (128, 128)


def test_each_call_recompiles(provider: TransformerEngineProvider) -> None:
    x = torch.ones(128, 256, dtype=torch.bfloat16)
    with fault("counting_state").apply(provider) as changed:
        compiled = whole(changed)
        compiled(x)
        with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="recompile"):
            compiled(x)
    honest = whole(provider)
    honest(x)
    with torch.compiler.set_stance("fail_on_recompile"):
        honest(x)


@pytest.mark.parametrize("faulty", [True, False])
def test_one_recipes_graph_runs_under_another(provider: TransformerEngineProvider, faulty: bool) -> None:
    def labels(changed: Any) -> list[str]:
        module = changed.linear(256, 128, bias=False, dtype=torch.bfloat16, device=CPU)
        compiled = torch.compile(module, backend="eager", fullgraph=True)
        with changed.tap() as records:
            for spec in (CURRENT, BLOCK):
                with changed.autocast(enabled=True, recipe=changed.recipe(spec)):
                    compiled(torch.ones(128, 256, dtype=torch.bfloat16))
        return [record.recipe for record in records]

    if not faulty:
        assert labels(provider) == [CURRENT.name, BLOCK.name]
        return
    with fault("recipe_without_guard").apply(provider) as changed:
        assert labels(changed) == [CURRENT.name, CURRENT.name]


# ---- which faults work where ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_says_the_same_of_its_providers_as_the_plan(name: str) -> None:
    assert fault(name).providers == ELSEWHERE.get(name, ONLY_REFERENCE)
    assert works_on(name, "reference")


@pytest.mark.parametrize("name", sorted(set(ELSEWHERE) - {"compilation_off"}))
def test_everything_is_mended(provider: TransformerEngineProvider, name: str) -> None:
    def state() -> list[Any]:
        return [te_ops.fprop, te_ops.backward, te_ops.quantised, TELinear.forward, provider.autocast]

    before = state()
    with fault(name).apply(provider):
        assert state() != before
    assert state() == before


def test_a_seam_of_another_provider_is_an_error() -> None:
    class Other:
        name = "other"

    apply = by_provider(fault("hang").apply, fault("hang").apply)
    with pytest.raises(ValueError, match="works on reference, transformer_engine, not on other"):
        apply(Other())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="layers of other are not known"):
        layer_of(Other())  # type: ignore[arg-type]
    assert layer_of(ReferenceProvider()).__name__ == "ToyLinear"


def test_the_plan_refuses_a_fault_that_breaks_nothing() -> None:
    text = "schema_version: 1\nmatrix:\n  recipe: [float8_current_scaling]\n  provider: [{}]\n"
    with pytest.raises(MatrixErrors) as caught:
        matrix_from_bytes(text.format("transformer_engine+leaky_exit+zero_block_nan").encode(), Path("m.yaml"))
    (error,) = caught.value.errors
    assert str(error) == (
        "m.yaml:4:14: fault 'zero_block_nan' breaks nothing of transformer_engine: it works on reference"
    )
    planned = matrix_from_bytes(text.format("transformer_engine+leaky_exit").encode(), Path("m.yaml")).full
    assert [cell.axes.provider.name for cell in planned.cells] == ["transformer_engine+leaky_exit"]
