"""cases.cudagraph: on the CPU a tape of operators stands in for the graph, so that its probes are shown to see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch

from cases import cudagraph
from cases.cudagraph import CASE, Moment
from harness.data import fill_parameters
from harness.faults import FAULTS
from harness.faults.fault import Fault
from harness.probing import Probing
from harness.program import CaseContext
from harness.providers.load import loaded_provider
from harness.providers.protocol import Provider
from harness.registry import load
from harness.types import Axes, Evidence, Spec
from tests.support import op_tape
from tests.support.op_tape import OpTape

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _taped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudagraph, "capture", op_tape.capture)
    # A dispatch mode keeps Dynamo from compiling: only eager code can be taped.
    monkeypatch.setattr(cudagraph, "ways", lambda ctx, forward: [("eager", forward)])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: OpTape.recording)


def axes_of(variant: str, **more: Any) -> Axes:
    spec = Spec("reference")
    return Axes("cudagraph", spec, Spec("float8_current_scaling"), variant=variant, shape=(32, 64, 32), **more)


def wrong(provider: Provider, axes: Axes) -> list[str]:
    """Names of the facts that do not hold, of the probes of one cell."""
    context = CaseContext(provider=provider, axes=axes, inner=None, device=CPU, dtype=torch.bfloat16)
    program = CASE.build(context)
    fill_parameters(program.model, 0, dtype=torch.bfloat16)
    part: Callable[[str], Any] = lambda moment: nullcontext()  # noqa: E731
    probing = Probing(provider, axes, Evidence.NATIVE, "cpu", CPU, torch.bfloat16, part)
    assert program.probes is not None
    program.probes(probing)
    assert len(probing.facts) > 15
    return [f"{fact.name}: {fact.seen}" for fact in probing.facts if fact.expected != fact.seen]


@contextmanager
def reference(fault: str = "") -> Iterator[Provider]:
    with loaded_provider(Spec("reference")) as loaded:
        broken: Fault | None = load(FAULTS[fault]) if fault else None
        with broken.apply(loaded.provider) if broken else nullcontext(loaded.provider) as provider:
            yield provider


@pytest.mark.parametrize("variant", ["captured", "kept_weight"])
def test_all_facts_hold_on_the_reference(variant: str) -> None:
    with reference() as provider:
        assert wrong(provider, axes_of(variant)) == []


def test_scales_that_are_constants_of_the_capture() -> None:
    with reference("scales_of_capture") as provider:
        found = wrong(provider, axes_of("captured"))
    assert len(found) == len(cudagraph.MOMENTS)
    assert all("differ from those of eager" in text for text in found)


def test_a_tensor_that_a_reset_replaced_shows_after_the_reset() -> None:
    with reference("dead_skip_tensor") as provider:
        found = wrong(provider, axes_of("kept_weight"))
    assert found
    assert all("after a reset" in text and "differ from those of eager" in text for text in found)


def test_code_that_only_looks_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right results every time: what gives it away is that nothing was launched and that Python ran."""
    monkeypatch.setattr(cudagraph, "capture", lambda step, x, grad: step)
    with reference() as provider:
        found = wrong(provider, axes_of("captured"))
    assert len(found) == 2 * len(cudagraph.MOMENTS)
    assert all(text.endswith(("graphs launched: 0", "that Python ran: 6")) for text in found)


def test_a_graph_that_ignores_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(step: Any, x: torch.Tensor, grad: torch.Tensor) -> Any:
        replay = op_tape.capture(step, x, grad)
        return lambda *batch: replay(x, grad)

    monkeypatch.setattr(cudagraph, "capture", deaf)
    monkeypatch.setattr(cudagraph, "change_weights", lambda model: None)
    with reference() as provider:
        found = wrong(provider, axes_of("captured"))
    assert "captured eager code: different outputs: 1" in found


def test_weights_are_changed_and_put_back() -> None:
    model = torch.nn.Linear(2, 2, bias=False)
    before = cudagraph.copies(model)
    address = model.weight.data_ptr()
    cudagraph.change_weights(model)
    assert torch.equal(model.weight, -0.75 * before[0])
    cudagraph.load(model, before)
    assert torch.equal(model.weight, before[0])
    assert model.weight.data_ptr() == address


@pytest.mark.parametrize("moments", [cudagraph.MOMENTS, cudagraph.KEPT_MOMENTS])
def test_every_sequence_has_three_replays_a_disabled_region_and_a_reset(moments: tuple[Moment, ...]) -> None:
    assert len(moments) >= 3 + 2
    assert {moment.after for moment in moments} == {"", "disabled", "reset"}


def test_without_a_gpu_the_cell_is_skipped_with_that_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with reference() as provider:
        for arch in ("cpu", "sm100"):
            monkeypatch.setattr(cudagraph, "device_for", lambda arch: CPU)
            assert f"and {arch} is none" in CASE.unavailable(provider, axes_of("captured"), arch)


def test_on_a_gpu_each_variant_runs_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudagraph, "device_for", lambda arch: torch.device("cuda"))
    with reference() as provider:
        assert CASE.unavailable(provider, axes_of("captured"), "sm90") == ""
        assert CASE.unavailable(provider, axes_of("kept_weight"), "sm90") == ""
        assert "inductor" in CASE.unavailable(provider, axes_of("reduce_overhead"), "sm90")
        assert CASE.unavailable(provider, axes_of("reduce_overhead", backend="inductor"), "sm90") == ""
        monkeypatch.setattr(type(provider), "features", {})
        assert "reference has no cached_linear" in CASE.unavailable(provider, axes_of("kept_weight"), "sm90")
