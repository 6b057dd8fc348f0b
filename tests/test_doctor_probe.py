"""What a child says, asked in this process: the good and the bad provider, the torch that is here."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness import registry
from harness.doctor import probe
from harness.doctor.questions import Program, ProviderFacts, Request, TorchFacts, dump, parse
from harness.providers import PROVIDERS
from harness.providers.protocol import DoctorFinding, ProviderUnavailable, Support
from harness.types import RECIPES, Axes, Spec
from tests.support import te
from tests.support.fake_provider import FakeProvider

CURRENT = Spec("float8_current_scaling")


class Made(FakeProvider):
    """A provider of the tests, registered as ``made``."""

    def doctor(self) -> Sequence[DoctorFinding]:
        return [DoctorFinding("kernels", False, "one is missing", "pip install it")]

    def supports(self, recipe: Spec, arch: str) -> Support:
        if recipe.name == "delayed_scaling":
            return Support("unsupported", "the library has no recipe", offered=False)
        if recipe.name == "nvfp4_block_scaling":
            raise KeyError("no row")
        return Support("native")


class Absent:
    def __init__(self) -> None:
        raise ProviderUnavailable("it is not installed", "pip install it")


class Broken:
    def __init__(self) -> None:
        raise OSError("libmade.so:\n  undefined symbol")


class Speechless(Made):
    def doctor(self) -> Sequence[DoctorFinding]:
        raise RuntimeError("doctor broke")


def asked(kind: str, monkeypatch: pytest.MonkeyPatch, programs: Sequence[Program] = ()) -> ProviderFacts:
    monkeypatch.setitem(PROVIDERS, "made", f"tests.test_doctor_probe:{kind}")  # type: ignore[misc]
    facts = probe.provider_facts(Spec("made"), programs)
    assert parse(ProviderFacts, dump(facts)) == facts  # survives the way to the front
    return facts


def test_a_provider_is_asked_about_every_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = asked("Made", monkeypatch)
    assert [belief.recipe.name for belief in facts.beliefs] == list(RECIPES)
    said = {belief.recipe.name: (belief.level, belief.reason, belief.offered) for belief in facts.beliefs}
    assert said["float8_current_scaling"] == ("native", "", True)
    assert said["delayed_scaling"] == ("unsupported", "the library has no recipe", False)
    assert said["nvfp4_block_scaling"] == ("error", "KeyError: 'no row'", True)
    (finding,) = facts.findings
    assert (finding.topic, finding.ok, finding.text, finding.fix) == (
        "kernels",
        False,
        "one is missing",
        "pip install it",
    )
    assert facts.versions["torch"]


def test_a_provider_that_says_it_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = asked("Absent", monkeypatch)
    assert (facts.unavailable, facts.fix, facts.error, facts.beliefs) == (
        "it is not installed",
        "pip install it",
        "",
        (),
    )


def test_a_provider_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = asked("Broken", monkeypatch)
    assert (facts.unavailable, facts.error) == ("", "OSError: libmade.so: undefined symbol")
    assert "NoSuchClass" in asked("NoSuchClass", monkeypatch).error  # a module that lacks what is registered


def test_a_provider_whose_own_doctor_raises_is_asked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = asked("Speechless", monkeypatch)
    (finding,) = facts.findings
    assert (finding.ok, finding.text) == (False, "the provider's own doctor raised RuntimeError: doctor broke")
    assert len(facts.beliefs) == len(RECIPES)


def program(recipe: Spec = CURRENT, inner: Spec | None = None, arch: str = "host", case: str = "toy_linear") -> Program:
    return Program(Axes(case, Spec("made"), recipe, arch), inner)


def test_programs_are_resolved_as_a_run_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.run.host.host_arch", lambda: "sm90")
    monkeypatch.setattr("harness.run.resolve.host_arch", lambda: "sm90")
    programs = (
        program(),
        program(inner=Spec("mxfp8_block_scaling", (("scale_rounding", "ceil"),)), arch="sm100"),
        program(inner=Spec("delayed_scaling"), arch="cpu"),
        program(Spec("nvfp4_block_scaling")),
    )
    answers = asked("Made", monkeypatch, programs).answers
    assert [one.program for one in answers] == list(programs)
    evidence = [(one.arch, one.evidence) for one in answers[:3]]
    assert evidence == [("sm90", "native"), ("sm100", "traced"), ("cpu", "negative")]
    assert [one.skipped for one in answers[:3]] == ["", "", "the library has no recipe"]
    assert (answers[3].evidence, answers[3].error) == ("", "KeyError: 'no row'")


def test_a_case_may_say_that_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    needing = SimpleNamespace(unavailable=lambda provider, axes, arch: f"{provider.name} has no graphs on {arch}")
    monkeypatch.setattr(
        "harness.registry.load", lambda path, load=registry.load: needing if "CASE" in path else load(path)
    )
    (answer,) = asked("Made", monkeypatch, (program(arch="cpu"),)).answers
    assert (answer.evidence, answer.skipped) == ("native", "fake has no graphs on cpu")


def test_a_case_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    (answer,) = asked("Made", monkeypatch, (program(case="nowhere"),)).answers
    assert answer.error == "KeyError: 'nowhere'"


def test_seeded_faults_are_applied() -> None:
    facts = probe.provider_facts(Spec("reference+leaky_exit"), (program(arch="cpu"),))
    assert (facts.error, facts.answers[0].evidence) == ("", "native")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Put a made-up Transformer Engine on the path."""
    yield lambda **changes: te.install(monkeypatch, tmp_path, **changes)
    te.forget()


@pytest.mark.parametrize(
    ("stack", "reason", "fix"),
    [
        ({"versions": {}}, "Transformer Engine is not installed", "'transformer-engine[pytorch]'"),
        (
            {"versions": {**te.EQUAL, "transformer-engine-torch": "2.19.0"}},
            "Transformer Engine's distributions differ in version: ",
            "'transformer-engine[pytorch]==2.20.2'",
        ),
        (
            {"versions": dict.fromkeys(te.EQUAL, "2.15.0")},
            "Transformer Engine 2.15.0 is too old: ",
            "'transformer-engine[pytorch]>=2.16'",
        ),
        ({"gpu": False}, "Transformer Engine 2.20.2 needs a GPU, and torch sees none", ""),
        ({"cuda": None}, "Transformer Engine 2.20.2 needs a GPU, and torch ", ""),
    ],
)
def test_a_transformer_engine_that_cannot_be_used(
    stack: dict[str, Any], reason: str, fix: str, installed: Callable[..., None]
) -> None:
    installed(**stack)
    facts = probe.provider_facts(Spec("transformer_engine"), ())
    assert facts.unavailable.startswith(reason)
    assert facts.fix.endswith(fix)
    assert bool(facts.fix) == bool(fix)
    assert facts.beliefs == ()


def test_a_transformer_engine_that_can(installed: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    installed()
    for module in ("run.host", "providers.te_support", "providers.transformer_engine"):
        monkeypatch.setattr(f"harness.{module}.host_arch", lambda: "sm90")
    facts = probe.provider_facts(Spec("transformer_engine"), ())
    said = {belief.recipe.name: (belief.level, belief.offered) for belief in facts.beliefs}
    assert (facts.unavailable, facts.error, facts.arch) == ("", "", "sm90")
    assert said["float8_block_scaling"] == ("native", True)
    assert said["mxfp8_block_scaling"] == ("unsupported", True)
    assert said["float8_rowwise_scaling"] == ("unsupported", False)


def test_the_torch_that_is_here() -> None:
    facts = probe.torch_facts()
    assert facts.version == torch.__version__
    assert (facts.git, facts.cuda) == (torch.version.git_version, torch.version.cuda or "")
    assert len(facts.gpus) == (torch.cuda.device_count() if torch.cuda.is_available() else 0)
    assert parse(TorchFacts, dump(facts)) == facts


def gpu(monkeypatch: pytest.MonkeyPatch, total: float = 8.0, error: Exception | None = None) -> TorchFacts:
    """The facts of a torch that claims one H200."""
    properties = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, total_memory=140 << 30)

    def available() -> bool:
        warnings.warn("The given NVIDIA GPU\n is new", stacklevel=1)
        return True

    def ones(*_: object, **__: object) -> Any:
        if error is not None:
            raise error
        return torch.full((1,), total)

    monkeypatch.setattr(torch.cuda, "is_available", available)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (100 << 30, 140 << 30))
    monkeypatch.setattr(torch, "ones", ones)
    return probe.torch_facts()


def test_a_gpu_runs_a_first_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = gpu(monkeypatch)
    (found,) = facts.gpus
    assert (found.name, found.arch, found.capability, found.error) == ("NVIDIA H200", "sm90", "9.0", "")
    assert (found.memory_mib, found.free_mib) == (140 << 10, 100 << 10)
    assert (facts.arch, facts.warnings) == ("sm90", ("The given NVIDIA GPU is new",))


def test_a_gpu_that_computes_nonsense_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu(monkeypatch, total=7.0).gpus[0].error == "a sum of eight ones gave 7"
    lost = RuntimeError("CUDA error: no kernel image is available\nfor execution on the device")
    said = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    assert gpu(monkeypatch, error=lost).gpus[0].error == said
    assert gpu(monkeypatch, error=RuntimeError()).gpus[0].error == "RuntimeError: no message"


@pytest.mark.parametrize("spec", [None, Spec("reference")])
def test_the_answer_is_a_whole_file(spec: Spec | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, main() ends without unloading anything; here that end is an exception."""

    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(
        probe, "faulthandler", SimpleNamespace(enable=lambda: None, dump_traceback_later=lambda seconds, exit: None)
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO(dump(Request(60.0, spec))))
    with pytest.raises(SystemExit) as end:
        probe.main([str(tmp_path / "answer.json")])
    assert end.value.code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["answer.json"]
    assert parse(TorchFacts if spec is None else ProviderFacts, (tmp_path / "answer.json").read_text()).arch  # type: ignore[arg-type, attr-defined]
