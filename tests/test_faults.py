"""What faults do beside being caught, which ``runner.py selftest`` shows of each: they mend what they broke, they don't
hide each other, and what they leave in a process is not blamed on a later cell."""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata

import pytest
import torch

from harness.faults import FAULTS
from harness.faults.cell import cells_of
from harness.faults.fault import Fault, lacking
from harness.faults.leftovers import Snapshot
from harness.faults.patching import patched
from harness.providers.load import loaded_provider
from harness.registry import load
from harness.run.execute import execute_cell
from harness.types import Axes, Cell, CellResult, Evidence, Expectation, Raises, Spec, Verdict

# A break under fullgraph=True is an exception, not a fallback: these are asked with fullgraph off.
FALLBACK = {
    "backward_disabled",
    "counting_state",
    "data_dependent_branch",
    "disabled_setter",
    "lock_around_state",
    "plain_refusal",
    "print_in_linear",
    "recipe_by_identity",
    "shapes_appended",
}
REFUSED = Expectation(raises=Raises("RuntimeError", "not supported under torch.compile"))


def run(fault: str, *, fullgraph: bool, recipe: str = "float8_current_scaling") -> CellResult:
    provider = Spec("reference" + (f"+{fault}" if fault else ""))
    axes = Axes("toy_linear", provider, Spec(recipe), fullgraph=fullgraph, nesting="nested")
    expect = REFUSED if recipe == "delayed_scaling" else Expectation()
    return execute_cell(Cell("cell", axes, Spec("float8_block_scaling"), expect))


def checks_of(result: CellResult) -> set[str]:
    return {finding.check for finding in result.findings}


@pytest.mark.parametrize("name", sorted(FALLBACK - {"plain_refusal"}))
def test_under_fullgraph_the_exception_is_the_signal(name: str) -> None:
    result = run(name, fullgraph=True)
    assert result.verdict is Verdict.FAIL
    assert "error.unexpected" in checks_of(result)


def test_out_of_memory_is_its_own_verdict() -> None:
    assert run("out_of_memory", fullgraph=True).verdict is Verdict.OOM


@pytest.mark.parametrize("recipe", ["float8_current_scaling", "delayed_scaling"])
@pytest.mark.parametrize("fullgraph", [True, False])
def test_clean_twin_is_green_also_after_every_fault(recipe: str, fullgraph: bool) -> None:
    result = run("", fullgraph=fullgraph, recipe=recipe)
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    assert result.evidence is Evidence.NATIVE


def test_a_cell_sees_the_same_after_another_cell_in_the_same_process() -> None:
    """Dynamo's counters outlive a cell: what an earlier one counted must not be taken off a later one's census."""
    first, second = (run("data_dependent_branch", fullgraph=False) for _ in range(2))
    for name in ("frames_total", "frames_ok", "eager_frames", "graphs"):
        assert second.census[name] == first.census[name] > 0
    clean = [run("", fullgraph=False).census["frames_total"] for _ in range(2)]
    assert clean == [1, 1]


def test_two_faults_at_once_are_both_seen() -> None:
    seen = checks_of(run("scale_doubled+dgrad_doubled", fullgraph=True))
    assert {"numerics.scales", "numerics.program"} <= seen


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_fault_names_itself_and_mends_what_it_broke(name: str) -> None:
    fault: Fault = load(FAULTS[name])
    assert fault.name == name
    assert fault.breaks
    with loaded_provider(Spec("reference")) as clean:
        before = Snapshot()
        with fault.apply(clean.provider):
            pass
        assert before.left() == ()


class _Owner:
    def method(self) -> int:
        return 1


def test_patched_puts_back_an_absent_name_and_survives_an_exception() -> None:
    class Child(_Owner):
        pass

    with pytest.raises(ZeroDivisionError), patched(Child, "method", lambda self: 1 // 0):
        Child().method()
    assert "method" not in vars(Child)
    assert Child().method() == 1


def test_a_bug_of_the_harness_is_an_error_not_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("observer broke")

    monkeypatch.setattr("harness.run.execute.observe_cell", broken)
    result = run("", fullgraph=True)
    assert result.verdict is Verdict.ERROR
    assert "observer broke" in result.reason
    assert "Traceback" in result.detail


def test_switched_off_compilation_is_an_error_not_a_pass() -> None:
    with torch._dynamo.config.patch(disable=True):
        result = run("", fullgraph=True)
    assert result.verdict is Verdict.ERROR
    assert "switched off" in result.reason


def test_what_a_fault_needs_is_known() -> None:
    assert {load(path).needs for path in FAULTS.values()} == {"", "cuda", "torch>=2.13"}


def test_what_a_machine_lacks_is_told() -> None:
    assert lacking("cuda", has_gpu=False) == "needs a CUDA device"
    assert lacking("cuda", has_gpu=True) == lacking("", has_gpu=False) == lacking("torch>=2.0", has_gpu=False) == ""
    assert lacking("torch>=99.1", has_gpu=True) == "needs torch 99.1"
    for nothing in ("cuda>=12", "torch", "triton"):
        with pytest.raises(ValueError, match="can't need"):
            lacking(nothing, has_gpu=True)


@pytest.mark.parametrize("version", ["2.13.0", "2.13.0+cu130", "2.13.0a0+git12", "2.13.0rc1", "2.14.0.dev20260901"])
def test_an_early_build_of_a_version_is_that_version(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(metadata, "version", lambda package: version)
    assert lacking("torch>=2.13", has_gpu=False) == ""
    assert lacking("torch>=2.15", has_gpu=False) == "needs torch 2.15"


# Those that break refusals show wherever a recipe is refused.
@pytest.mark.parametrize("name", [name for name in sorted(FAULTS) if name.startswith("sm100_")])
@pytest.mark.parametrize("arch", ["cpu", "sm103"])
def test_faults_of_one_architecture_are_invisible_on_others(name: str, arch: str) -> None:
    """Only a cell that names the architecture shows them: that is what tracing for a machine elsewhere is good for."""
    fault: Fault = load(FAULTS[name])
    elsewhere, _ = cells_of(replace(fault, where={**fault.where, "arch": arch}))
    result = execute_cell(elsewhere)
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    elsewhere_levels = (Evidence.TRACED, Evidence.REHEARSED)
    assert (result.evidence in elsewhere_levels) is (arch == "sm103")
