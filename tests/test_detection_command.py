"""harness.detection.command: what is told of a command, and which faults a machine can't measure."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from harness.detection import command
from harness.detection.command import skip_reason, sorted_out, spoken, without
from harness.faults.fault import Fault


def fault(caught_by: str, needs: str = "") -> Fault:
    return Fault("a_fault", "something", caught_by, lambda provider: nullcontext(provider), needs=needs)


def test_the_command_is_shown_without_this_machines_files() -> None:
    given = [
        "--json",
        "a.jsonl",
        "--seeds",
        "0,1",
        "--write=page.md",
        "-j",
        "2",
        "--from-json",
        "b",
        "--data",
        "normal",
    ]
    assert spoken("m", given) == "python -m m --seeds 0,1 --data normal"
    assert without(given, ("--seeds", "--json")) == given[4:]
    assert without(["--json=a", "--x"], ("--json",)) == ["--x"]


@pytest.mark.parametrize("gpu", [False, True])
def test_what_cant_be_measured_has_its_reason(monkeypatch: pytest.MonkeyPatch, gpu: bool) -> None:
    monkeypatch.setattr(command.torch.cuda, "is_available", lambda: gpu)
    assert skip_reason(fault("state.unchanged")) == ""
    assert skip_reason(fault("state.unchanged", "cuda")) == ("" if gpu else "needs a CUDA device")
    assert "run.timeout" in skip_reason(fault("run.timeout"))
    here, elsewhere = sorted_out(["leaky_exit", "hang"])
    assert here == ["leaky_exit"]
    assert [name for name, _ in elsewhere] == ["hang"]
