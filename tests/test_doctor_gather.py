"""The whole report of made-up machines: what is said, and with which exit code."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from harness.doctor.children import Reply
from harness.doctor.gather import Inquiry, examine, with_gpu_fix
from harness.doctor.machine import Driver
from harness.doctor.questions import Finding, ProviderFacts, Request, TorchFacts
from harness.doctor.stack import REINSTALL_TORCH
from harness.doctor.types import Answer, ProviderReport, Report
from harness.types import RECIPES, Spec
from tests.support.doctoring import (
    LAPTOP,
    ON_HOPPER,
    SERVER,
    TE_FIX,
    WITH_GPU,
    WITHOUT_GPU,
    provider_facts,
    report_of,
)

MATRIX = "require: {}\nmatrix: {{recipe: [float8_current_scaling, mxfp8_block_scaling]}}\n"
TE_MATRIX = "require: emulated\nmatrix: {provider: [transformer_engine], recipe: [float8_current_scaling]}\n"
NOT_INSTALLED = ProviderFacts("sm90", unavailable="Transformer Engine is not installed", fix=TE_FIX)
SEGFAULT = Reply("", "was killed by SIGSEGV", ("Fatal Python error: Segmentation fault", 'File "te.py", line 3'))


def provider(report: Report, name: str = "transformer_engine") -> ProviderReport:
    (found,) = [one for one in report.providers if one.provider == name]
    return found


def test_a_good_machine() -> None:
    report = report_of()
    assert (report.exit_code, report.exit_reason) == (0, "a matrix can be run here")
    assert (report.arch, report.gpus) == ("sm90", WITH_GPU.gpus)
    assert report.visible_devices == "CUDA_VISIBLE_DEVICES is not set"
    assert report.versions["transformer-engine-torch"] == "2.20.2"
    found = provider(report)
    assert (found.answer, found.arch, [one.recipe for one in found.recipes]) == (Answer.USABLE, "sm90", list(RECIPES))
    levels = {one.recipe: one.level for one in found.recipes}
    assert levels == {name: level for name, (level, _) in ON_HOPPER.items()}
    assert not any(one.disputed for one in found.recipes)


def test_a_machine_without_a_gpu_can_run_matrices_too() -> None:
    report = report_of(machine=LAPTOP, torch=WITHOUT_GPU)
    assert (report.exit_code, report.arch, report.gpus) == (0, "cpu", ())


def test_a_provider_that_is_not_usable_matters_where_it_was_named() -> None:
    replies = {"transformer_engine": NOT_INSTALLED}
    assert report_of(replies=replies).exit_code == 0
    report = report_of(replies=replies, wanted=["transformer_engine"])
    assert (report.exit_code, report.exit_reason) == (1, "transformer_engine can't be used here")
    found = provider(report)
    assert (found.answer, found.reason, found.fix) == (Answer.UNAVAILABLE, NOT_INSTALLED.unavailable, TE_FIX)
    assert report_of(wanted=["transformer_engine"]).exit_code == 0


def test_a_provider_that_dies_is_a_finding_and_the_others_are_asked() -> None:
    report = report_of(replies={"transformer_engine": SEGFAULT})
    found = provider(report)
    assert (found.answer, found.reason, found.output) == (Answer.DIED, "was killed by SIGSEGV", SEGFAULT.output)
    assert provider(report, "reference").answer is Answer.USABLE
    assert report.exit_code == 0
    assert report_of(replies={"transformer_engine": SEGFAULT}, wanted=["transformer_engine"]).exit_code == 1


def test_a_provider_that_raises_and_one_that_answers_nonsense() -> None:
    replies: Mapping[str, Reply | ProviderFacts] = {
        "transformer_engine": ProviderFacts("sm90", error="OSError: libnvrtc.so.13"),
        "reference": Reply('{"arch": 3}'),
    }
    report = report_of(replies=replies)
    assert (provider(report).answer, provider(report).reason) == (Answer.ERROR, "OSError: libnvrtc.so.13")
    odd = provider(report, "reference")
    assert (odd.answer, odd.reason.startswith("gave an answer that can't be read:")) == (Answer.DIED, True)


def test_the_providers_own_findings_are_kept() -> None:
    bad = provider_facts(Request(1.0), findings=(Finding("cuDNN", False, "too old", "pip install x"),))
    (finding,) = provider(report_of(replies={"transformer_engine": bad})).findings
    assert (finding.topic, finding.status.value, finding.text, finding.fix) == (
        "cuDNN",
        "problem",
        "too old",
        "pip install x",
    )


def test_a_belief_that_the_judge_calls_wrong() -> None:
    boast = provider_facts(Request(1.0), {**ON_HOPPER, "nvfp4_block_scaling": ("native", "")})
    disputed = {one.recipe: one.disputed for one in provider(report_of(replies={"transformer_engine": boast})).recipes}
    assert disputed["nvfp4_block_scaling"].startswith("the judge's support table says emulated or unsupported")
    assert disputed["float8_current_scaling"] == ""


def test_what_brings_torch_a_gpu_mends_a_library_that_lacks_one() -> None:
    text = "Transformer Engine 2.20.2 needs a GPU, and torch 2.13.0 is built without CUDA"
    lacking = ProviderFacts("cpu", unavailable=text)
    report = report_of(replies={"transformer_engine": lacking}, torch=WITHOUT_GPU)
    assert provider(report).fix == REINSTALL_TORCH
    hidden = dataclasses.replace(WITH_GPU, gpus=(), arch="cpu")
    report = report_of(replies={"transformer_engine": lacking}, torch=hidden, env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert (provider(report).fix, report.visible_devices) == ("unset CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES='-1'")
    assert with_gpu_fix(NOT_INSTALLED, "x").fix == TE_FIX
    assert with_gpu_fix(ProviderFacts("cpu", unavailable="it has no autocast"), "x").fix == ""


@pytest.mark.parametrize(("require", "code"), [("traced", 0), ("emulated", 0), ("native", 1)])
def test_the_exit_code_of_a_matrix(require: str, code: int) -> None:
    report = report_of(matrix=MATRIX.format(require), providers=["reference"])
    assert report.exit_code == code
    words = "can't be met here" if code else "can be met here"
    assert report.exit_reason == f"made's require {require} {words}"
    assert report.matrix is not None
    assert report.matrix.met is (code == 0)


def test_a_matrix_on_a_provider_that_is_not_installed_or_dies() -> None:
    for reply in (NOT_INSTALLED, SEGFAULT):
        report = report_of(matrix=TE_MATRIX, replies={"transformer_engine": reply})
        assert report.exit_code == 1
        assert report.matrix is not None
        assert report.matrix.shortfalls[0].recipe == "float8_current_scaling"
    assert report_of(matrix=TE_MATRIX).exit_code == 0


def test_no_run_starts_without_torch() -> None:
    bare = dataclasses.replace(SERVER, packages={k: v for k, v in SERVER.packages.items() if k != "torch"})

    def never(requests: object, env: object) -> list[Reply]:
        raise AssertionError("no child is needed to know it")

    report = examine(Inquiry((Spec("reference"),)), {}, asker=never, looker=lambda env: bare)
    assert (report.exit_code, report.arch) == (1, "")
    assert report.exit_reason == "no run can start here before this is mended: torch"
    assert report.providers[0].reason == "was not started: torch is not installed"
    report = report_of(matrix=MATRIX.format("traced"), providers=["reference"], machine=bare)
    assert report.matrix is not None
    assert {one.command for one in report.matrix.shortfalls} == {"pip install 'torch>=2.11'"}


def test_a_torch_that_cannot_be_imported_is_told_with_its_last_words() -> None:
    died = Reply("", "ended with exit code 1 and no answer", ("Traceback", "ImportError: libcudart.so.13"))
    report = report_of(torch=died)
    (item,) = [one for one in report.stack if one.topic == "torch"]
    assert item.text.endswith("ended with exit code 1 and no answer: ImportError: libcudart.so.13")
    assert (report.exit_code, report.arch) == (1, "")


def test_a_refused_environment_stops_every_run() -> None:
    report = report_of(env={"TORCHDYNAMO_DISABLE": "1"})
    assert (report.exit_code, report.exit_reason) == (1, "a run would refuse to start with TORCHDYNAMO_DISABLE")
    assert report_of(env={"TORCH_COMPILE_JOB_ID": "x"}).exit_code == 1
    assert report_of(env={"TORCH_COMPILE_JOB_ID": "x"}, allowed_env=("TORCH_COMPILE_JOB_ID",)).exit_code == 0
    assert report_of(env={"NVTE_FUSED_ATTN": "0"}).exit_code == 0


def test_all_reasons_are_told() -> None:
    old = TorchFacts("2.9.0")
    report = report_of(
        matrix=MATRIX.format("native"), providers=["reference"], torch=old, env={"TORCHDYNAMO_DISABLE": "1"}
    )
    assert [part.split()[0] for part in report.exit_reason.split("; ")] == ["no", "a", "made's"]


def test_children_are_asked_what_is_needed_and_no_more() -> None:
    seen: list[Request] = []

    def ask(requests: object, env: Mapping[str, str]) -> list[Reply]:
        seen.extend(requests)  # type: ignore[arg-type]
        assert "harness" not in env.get("PYTHONPATH", "").split("/")[-1]  # the repository, not the package
        assert env["PYTHONPATH"]
        return [Reply("", "died")] * len(seen)

    from tests.support.doctoring import plan_of

    plan = plan_of("matrix: {recipe: [float8_current_scaling], nesting: [flat, sequential], seed: [0, 1]}\n")
    providers = (Spec("reference"), Spec("transformer_engine"))
    examine(Inquiry(providers, plan=plan, cells=plan.cells, seconds=9.0), {}, asker=ask, looker=lambda env: SERVER)
    assert [request.provider for request in seen] == [None, *providers]
    assert {request.seconds for request in seen} == {9.0}
    assert [len(request.programs) for request in seen] == [0, 4, 0]


def test_a_driver_without_gpus_for_torch_is_a_problem_and_no_end() -> None:
    machine = dataclasses.replace(SERVER, driver=Driver("580.65.06", ("NVIDIA H200",)))
    report = report_of(machine=machine, torch=WITHOUT_GPU)
    assert [one.status.value for one in report.stack if one.topic == "NVIDIA driver"] == ["problem"]
    assert report.exit_code == 0
