"""Running the facts that a case states beside its program."""

from __future__ import annotations

import torch

from harness.observe.recorder import Recorder
from harness.observe.subject import Subject
from harness.observe.types import Fact
from harness.probing import Probing
from harness.program import Program


def probe(subject: Subject, recorder: Recorder, program: Program) -> tuple[Fact, ...] | None:
    """The facts of the case's probes, with the provider reset before them; None where there are none at this level.

    An exception of a probe is an error of phase ``probe``; what was stated before it is kept.
    """
    if program.probes is None or subject.evidence not in program.probe_levels:
        return None
    recorder.reset_provider()
    probing = Probing(
        provider=subject.provider,
        axes=subject.axes,
        evidence=subject.evidence,
        arch=subject.arch,
        device=subject.device,
        dtype=getattr(torch, subject.axes.dtype),
        part=lambda moment: recorder.part("probe", moment),
    )
    with recorder.part("probe", "after the probes"):
        program.probes(probing)
    return tuple(probing.facts)
