"""The child process: ``python -m harness.doctor.probe ANSWER_FILE`` with a request on stdin.

Everything that can abort, hang or poison a process happens here. What libraries print goes wherever they like; the
answer is a file.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.doctor.libraries import versions as library_versions
from harness.doctor.questions import (
    Belief,
    Finding,
    Program,
    ProgramAnswer,
    ProviderFacts,
    Request,
    TorchFacts,
    dump,
    parse,
)
from harness.doctor.types import Gpu
from harness.program import Case
from harness.providers.protocol import LoadedProvider, Provider, ProviderUnavailable
from harness.types import RECIPES, Cell, Spec


def main(arguments: Sequence[str]) -> int:
    """Answer one request."""
    request = parse(Request, sys.stdin.read())
    with suppress(OSError, ValueError, AttributeError):  # a stderr without a descriptor
        faulthandler.enable()
        faulthandler.dump_traceback_later(request.seconds, exit=True)  # also where the front is gone
    facts: object = torch_facts() if request.provider is None else provider_facts(request.provider, request.programs)
    target = Path(arguments[0])
    unfinished = target.with_suffix(".part")
    unfinished.write_text(dump(facts), encoding="utf-8")
    os.replace(unfinished, target)
    sys.stdout.flush()
    sys.stderr.flush()
    # The answer stands: a library that fails while it is unloaded has no say in it.
    os._exit(0)


def torch_facts() -> TorchFacts:
    """Import torch, look at every GPU and run a first kernel on each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import torch

        from harness.run.host import host_arch

        gpus = [_gpu(torch, index) for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
        arch = host_arch()
    found = library_versions()
    cudnn, ok, fix = _cudnn()
    return TorchFacts(
        version=torch.__version__,
        git=torch.version.git_version or "",
        cuda=torch.version.cuda or "",
        hip=getattr(torch.version, "hip", None) or "",
        runtime=found["runtime"],
        driver_cuda=found["driver"],
        cublaslt=found["cublaslt"],
        cudnn=cudnn,
        cudnn_ok=ok,
        cudnn_fix=fix,
        compiled_for=tuple(torch.cuda.get_arch_list()),
        warnings=tuple(dict.fromkeys(" ".join(str(one.message).split()) for one in caught)),
        gpus=tuple(gpus),
        arch=arch,
    )


def _gpu(torch: Any, index: int) -> Gpu:
    properties = torch.cuda.get_device_properties(index)
    free, error = 0, ""
    try:
        free = torch.cuda.mem_get_info(index)[0] >> 20
        total = float(torch.ones(8, device=f"cuda:{index}").sum().item())
        error = "" if total == 8 else f"a sum of eight ones gave {total:g}"
    except Exception as raised:  # out of memory, no kernel image, a lost GPU: each is what the user must read
        error = _said(raised)
    return Gpu(
        index=index,
        name=properties.name,
        arch=f"sm{properties.major}{properties.minor}",
        capability=f"{properties.major}.{properties.minor}",
        memory_mib=properties.total_memory >> 20,
        free_mib=free,
        error=error,
    )


def _cudnn() -> tuple[str, bool, str]:
    from harness.providers.te_stack import cudnn_finding  # needs no Transformer Engine

    finding = cudnn_finding()
    return ("", True, "") if finding is None else (finding.text, finding.ok, finding.fix)


def provider_facts(spec: Spec, programs: Sequence[Program]) -> ProviderFacts:
    """Load a provider with its faults and ask it about every recipe here, and about ``programs``."""
    from harness.providers.load import loaded_provider
    from harness.run.host import cuda_version, host_arch, versions

    arch, cuda = host_arch(), cuda_version()
    try:
        with loaded_provider(spec) as loaded:
            return _told(loaded, programs, arch, cuda, dict(versions()))
    except ProviderUnavailable as error:
        return ProviderFacts(arch, cuda, dict(versions()), unavailable=error.reason, fix=error.fix)
    except Exception as error:  # whatever a library raises is what doctor has to tell
        return ProviderFacts(arch, cuda, dict(versions()), error=_said(error))


def _told(
    loaded: LoadedProvider,
    programs: Sequence[Program],
    arch: str,
    cuda: tuple[int, int] | None,
    versions: dict[str, str],
) -> ProviderFacts:
    provider = loaded.provider
    return ProviderFacts(
        arch=arch,
        cuda=cuda,
        versions=versions,
        beliefs=tuple(_belief(provider, Spec(name), arch) for name in RECIPES),
        answers=tuple(_answer(provider, program) for program in programs),
        findings=tuple(_findings(provider)),
    )


def _belief(provider: Provider, recipe: Spec, arch: str) -> Belief:
    try:
        support = provider.supports(recipe, arch)
    except Exception as error:
        return Belief(recipe, "error", _said(error))
    return Belief(recipe, support.level, support.reason, support.offered)


def _answer(provider: Provider, program: Program) -> ProgramAnswer:
    """What the run does with a cell before it builds anything (harness/run/execute.py)."""
    from cases import CASES
    from harness.registry import load
    from harness.run.host import resolve_arch
    from harness.run.resolve import resolve

    axes = program.axes
    arch = resolve_arch(axes.arch)
    try:
        case: Case = load(CASES[axes.case].path)
        resolved = resolve(Cell("", axes, program.inner), provider, arch)
        absent = [belief.reason for belief in resolved.support.values() if not belief.offered]
        skipped = absent[0] if absent else case.unavailable(provider, axes, arch)
    except Exception as error:  # a user's case file or the library: the answer is that it raised
        return ProgramAnswer(program, arch, "", error=_said(error))
    specs = [axes.recipe, *([program.inner] if program.inner else [])]
    found = [(one, resolved.support[one.label]) for one in specs]
    beliefs = tuple(Belief(one, said.level, said.reason, said.offered) for one, said in found)
    return ProgramAnswer(program, arch, resolved.evidence.value, beliefs, skipped)


def _findings(provider: Provider) -> list[Finding]:
    try:
        return [Finding(one.topic, one.ok, one.text, one.fix) for one in provider.doctor()]
    except Exception as error:
        return [Finding("doctor", False, f"the provider's own doctor raised {_said(error)}")]


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
