"""The observation of one cell, from a builder to :class:`Observations`. Nothing is judged here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from harness.observe.errors import describe_error
from harness.observe.executed import observe_executed
from harness.observe.recorder import Recorder
from harness.observe.run import Build
from harness.observe.subject import Subject, pinned
from harness.observe.types import Observations
from harness.observe.unexecuted import observe_negative, observe_traced
from harness.providers.protocol import Provider
from harness.types import Axes, Evidence, Expectation

_OBSERVE: Mapping[Evidence, Callable[[Subject, Recorder], Observations]] = {
    Evidence.NATIVE: observe_executed,
    Evidence.EMULATED: observe_executed,
    Evidence.REHEARSED: observe_executed,
    Evidence.NEGATIVE: observe_negative,
    Evidence.TRACED: observe_traced,
}


def observe_cell(
    build: Build,
    provider: Provider,
    axes: Axes,
    evidence: Evidence,
    arch: str,
    expectation: Expectation,
    device: torch.device,
) -> Observations:
    """Run one cell and return everything that was measured.

    Exceptions of the product (building, entering, eager, compiling, running, backward) are observations: described with
    their phase, and the part that they ended is missing. State is compared after each part. The provider is reset at
    the end, the compiler before each compilation; compiler settings are pinned meanwhile (``pinned_settings``).

    Args:
        build: makes the program on a given provider, the cell's own or the judge's oracle.
        evidence: the resolved level; decides what is done.
        arch: the resolved architecture (never ``host``).
        device: where tensors live; the CPU for rehearsed, traced and foreign negative cells.

    Raises:
        KeyError: ``evidence`` is ``none``.
        Exception: a defect of the harness, or of the provider's adapter (``snapshot``, ``reset``, ``pretend``), while
            torch's own settings are as they were found; else it becomes an observation too.
    """
    subject = Subject(build, provider, axes, evidence, arch, expectation, device)
    recorder = Recorder(provider)
    with pinned(axes):
        recorder.reset_provider()
        initial = recorder.snapshot()
        obs = _observed(subject, recorder, initial)
        recorder.compare(initial, "after reset", rng=False)  # the harness seeds
    return replace(
        obs,
        errors=tuple(recorder.errors),
        state_diffs=tuple(recorder.diffs),
        state_keys=recorder.state_keys,
        timing=dict(recorder.timing),
        notes=tuple(recorder.notes),
    )


def _observed(subject: Subject, recorder: Recorder, initial: Mapping[str, Any]) -> Observations:
    """The observation of this level of evidence, and a reset after it.

    An exception outside of every part is a defect of the harness, unless torch is no longer as it was found: with a
    mode that the product left active, anything may fail, and the product is to blame.
    """
    observe = _OBSERVE[subject.evidence]
    try:
        try:
            return observe(subject, recorder)
        finally:
            recorder.reset_provider()
    except Exception as error:
        if not recorder.unlike(initial):
            raise
        recorder.errors.append(describe_error(error, "run"))
        return Observations(subject.evidence, subject.arch)
