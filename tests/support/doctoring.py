"""Made-up machines and answers for the tests of doctor: nothing here was measured."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.doctor.children import Reply
from harness.doctor.forecast import Asked, forecast
from harness.doctor.gather import Inquiry, examine
from harness.doctor.machine import NEEDED, Driver, Machine
from harness.doctor.questions import (
    Belief,
    Finding,
    ProgramAnswer,
    ProviderFacts,
    Request,
    TorchFacts,
    dump,
    program_of,
)
from harness.doctor.types import Gpu, MatrixReport, Report
from harness.plan import Plan, expand
from harness.plan.load import matrix_from_bytes
from harness.types import RECIPES, Evidence, Spec

TE_FIX = "pip install --no-build-isolation 'transformer-engine[pytorch]'"
H200 = Gpu(0, "NVIDIA H200", "sm90", "9.0", 143771, 142900)
WITH_GPU = TorchFacts(
    version="2.11.0+cu130",
    git="0123456789abcdef",
    cuda="13.0",
    runtime="13.0",
    driver_cuda="13.0",
    cublaslt="13.1.0",
    cudnn="9.19.0",
    compiled_for=("sm_80", "sm_90"),
    gpus=(H200,),
    arch="sm90",
)
WITHOUT_GPU = TorchFacts(version="2.13.0+cpu", git="fedcba9876543210")
PACKAGES = {name: least or "1.0" for name, least in NEEDED.items()}
TE_PARTS = dict.fromkeys(("transformer-engine", "transformer-engine-torch", "transformer-engine-cu13"), "2.20.2")
SERVER = Machine(
    python="3.11.9",
    platform="Linux x86_64",
    packages={**PACKAGES, **TE_PARTS, "triton": "3.6.0"},
    driver=Driver("580.65.06", ("NVIDIA H200",)),
    hardware=1,
    compiler="/usr/bin/g++",
)
LAPTOP = Machine(python="3.10.1", platform="Linux x86_64", packages=PACKAGES, compiler="/usr/bin/g++")

# What a made-up library believes on sm90; elsewhere all is native.
ON_HOPPER: Mapping[str, tuple[str, str]] = {
    "delayed_scaling": ("native", ""),
    "float8_current_scaling": ("native", ""),
    "float8_block_scaling": ("native", ""),
    "mxfp8_block_scaling": ("emulated", "needs compute capability 10.0 or higher, sm90 has 9.0"),
    "nvfp4_block_scaling": ("unsupported", "NVFP4 needs a Blackwell GPU"),
    "float8_rowwise_scaling": ("absent", "the library has no recipe for float8_rowwise_scaling"),
}


def belief(recipe: Spec, arch: str = "sm90", levels: Mapping[str, tuple[str, str]] = ON_HOPPER) -> Belief:
    level, reason = levels[recipe.name] if arch == "sm90" else ("native", "")
    if level == "absent":
        return Belief(recipe, "unsupported", reason, offered=False)
    return Belief(recipe, level, reason)


def provider_facts(
    request: Request, levels: Mapping[str, tuple[str, str]] = ON_HOPPER, **changes: Any
) -> ProviderFacts:
    """What the made-up library answers on an H200."""
    answers = []
    for program in request.programs:
        arch = "sm90" if program.axes.arch == "host" else program.axes.arch
        specs = [program.axes.recipe, *([program.inner] if program.inner else [])]
        beliefs = tuple(belief(spec, arch, levels) for spec in specs)
        found = {one.level for one in beliefs}
        evidence = Evidence.NATIVE if found == {"native"} else Evidence.EMULATED
        evidence = Evidence.TRACED if arch != "sm90" else evidence
        evidence = Evidence.NEGATIVE if "unsupported" in found else evidence
        skipped = next((one.reason for one in beliefs if not one.offered), "")
        answers.append(ProgramAnswer(program, arch, evidence.value, beliefs, skipped))
    facts = ProviderFacts(
        arch="sm90",
        cuda=(13, 0),
        versions={"torch": "2.11.0", "transformer_engine": "2.20.2", "cuda": "13.0"},
        beliefs=tuple(belief(Spec(name), "sm90", levels) for name in RECIPES),
        findings=(Finding("kernels", True, "all there"),),
        answers=tuple(answers),
    )
    return dataclasses.replace(facts, **changes)


def asker(replies: Mapping[str, Reply | ProviderFacts] | None = None, torch: TorchFacts | Reply = WITH_GPU) -> Any:
    """Answers in place of child processes: for torch, and for each provider by its label (default: an H200's)."""

    def ask(requests: Sequence[Request], env: Mapping[str, str]) -> list[Reply]:
        given: list[Reply | TorchFacts | ProviderFacts] = []
        for request in requests:
            if request.provider is None:
                given.append(torch)
            else:
                given.append((replies or {}).get(request.provider.label, provider_facts(request)))
        return [one if isinstance(one, Reply) else Reply(dump(one)) for one in given]

    return ask


def plan_of(text: str) -> Plan:
    """A matrix of ``toy_linear`` from the lines below its version."""
    return expand(matrix_from_bytes(f"schema_version: 1\nname: made\n{text}".encode(), Path("made.yaml")), {})


def forecast_of(text: str, asked: Mapping[str, Asked] | None = None, **words: Any) -> MatrixReport:
    """The forecast of a matrix on an H200; providers that ``asked`` doesn't name answer as the made-up library."""
    plan = plan_of(text)
    given = dict(asked or {})
    for cell in plan.cells:
        spec = cell.axes.provider
        programs = tuple(dict.fromkeys(program_of(one) for one in plan.cells if one.axes.provider == spec))
        given.setdefault(spec.label, Asked(provider_facts(Request(1.0, spec, programs))))
    return forecast(plan, plan.cells, given, datetime.date(2026, 6, 1), **words)


def report_of(
    *,
    matrix: str = "",
    providers: Sequence[str] = ("reference", "transformer_engine"),
    wanted: Sequence[str] = (),
    replies: Mapping[str, Reply | ProviderFacts] | None = None,
    torch: TorchFacts | Reply = WITH_GPU,
    machine: Machine = SERVER,
    env: Mapping[str, str] | None = None,
    **changes: Any,
) -> Report:
    """A whole report of a made-up machine."""
    plan = plan_of(matrix) if matrix else None
    inquiry = Inquiry(tuple(map(Spec, providers)), frozenset(wanted), plan, plan.cells if plan else (), **changes)
    return examine(inquiry, env or {}, asker=asker(replies, torch), looker=lambda env: machine)
