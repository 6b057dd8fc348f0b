"""The provider's layer: delayed scaling in the library's checkpoint, and sizes that the library's modules refuse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.observe.state import diff
from harness.providers import te_stack
from harness.providers.protocol import TapRecord
from harness.providers.transformer_engine import TransformerEngineProvider
from harness.types import Spec
from tests.support.te import forget, install

CURRENT = Spec("float8_current_scaling")
DELAYED = Spec("delayed_scaling", (("amax_history_len", 4),))
CPU = torch.device("cpu")


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[TransformerEngineProvider]:
    install(monkeypatch, tmp_path)
    made = TransformerEngineProvider()
    made.reset()
    yield made
    forget()


def layer(provider: TransformerEngineProvider) -> torch.nn.Module:
    torch.manual_seed(0)
    return provider.linear(256, 128, bias=True, dtype=torch.bfloat16, device=CPU)


def batch() -> torch.Tensor:
    return torch.randn(128, 256, generator=torch.Generator().manual_seed(1)).bfloat16().requires_grad_()


def changed(before: Any, provider: TransformerEngineProvider) -> set[str]:
    return {item.key for item in diff(before, provider.snapshot(), "")}


class Products:
    """Operands of each product by name, of one step after another."""

    def __init__(self, records: list[TapRecord]) -> None:
        self.of = {f"{record.phase} {record.product}": record for record in records}

    def same(self, first: str, second: str) -> bool:
        one, other = self.of[first].a, self.of[second].a
        return torch.equal(one.codes, other.codes) and torch.equal(one.scale, other.scale)


def checkpointed(provider: TransformerEngineProvider, module: torch.nn.Module, spec: Spec) -> Products:
    with provider.tap() as records:
        with provider.autocast(enabled=True, recipe=provider.recipe(spec)):
            y = provider.features["checkpoint"](module, batch())
        torch.autograd.backward(y, torch.full_like(y, 0.5))
    return Products(records)


def stashes() -> list[Any]:
    state = te_stack.module("pytorch.quantization").FP8GlobalStateManager.quantization_state
    return [list(stash) for stash in state.fp8_tensors_recompute_buffer]


def test_a_recompute_takes_the_scales_of_its_forward(provider: TransformerEngineProvider) -> None:
    module = layer(provider)
    before = provider.snapshot()
    for _ in range(3):
        assert checkpointed(provider, module, DELAYED).same("forward fprop", "recompute fprop")
    assert stashes() == [[]]
    assert changed(before, provider) <= {"state.is_first_fp8_module"}  # the library's own (docs/findings.md)


def test_a_recompute_with_later_scales_shows(
    provider: TransformerEngineProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = te_stack.module("pytorch.quantization").FP8GlobalStateManager
    for name in ("get_old_fp8_meta_tensors_for_recompute", "restore_fp8_meta_tensors"):
        monkeypatch.setattr(manager, name, lambda meta: None)
    assert not checkpointed(provider, layer(provider), DELAYED).same("forward fprop", "recompute fprop")
    assert provider.snapshot()["state.fp8_tensors_recompute_buffer.waiting"] == 1
    provider.reset()
    assert stashes() == [[]]


def test_a_recompute_leaves_the_claim_of_the_first_module(provider: TransformerEngineProvider) -> None:
    manager = te_stack.module("pytorch.quantization").FP8GlobalStateManager
    module: Any = layer(provider)
    with provider.autocast(enabled=True, recipe=provider.recipe(DELAYED)):
        module(batch())
    manager.quantization_state.is_first_fp8_module = True
    with te_stack.module("pytorch.distributed")._phase(second=True):
        assert module._claims_first(module._delayed) is True
        assert manager.quantization_state.is_first_fp8_module is True
    assert [module._claims_first(module._delayed) for _ in range(2)] == [True, False]


@pytest.mark.parametrize(("rows", "columns"), [(127, 256), (128, 260)])
@pytest.mark.parametrize("spec", [CURRENT, DELAYED], ids=lambda spec: spec.name)
def test_sizes_are_refused_as_by_the_librarys_modules(
    provider: TransformerEngineProvider, spec: Spec, rows: int, columns: int
) -> None:
    before = provider.snapshot()
    made = provider.linear(columns, 128, bias=False, dtype=torch.bfloat16, device=CPU)
    x = torch.ones(rows, columns, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="divisible by"), provider.autocast(recipe=provider.recipe(spec)):
        made(x)
    assert made(x).shape == (rows, 128)  # outside a region
    assert changed(before, provider) <= {"state.registers"}
