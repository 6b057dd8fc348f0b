from __future__ import annotations

import pytest

from harness.observe.census import compile_switches
from harness.run.environment import (
    allowable_names,
    child_defaults,
    of_run,
    recorded,
    refusals,
    unknown_allowances,
)

REFUSED = [
    ("TORCHDYNAMO_DISABLE", "1"),
    ("TORCHDYNAMO_DISABLE", "true"),
    ("TORCHDYNAMO_DISABLE", "no"),  # whatever it means, the census takes it for on
    ("TORCH_COMPILE_DISABLE", "True"),
    ("TORCH_COMPILE_DISABLE", "1"),
    ("TORCHDYNAMO_SUPPRESS_ERRORS", "0"),  # torch reads bool("0")
    ("TORCH_COMPILE_OVERRIDE_BACKENDS", ">0:eager"),
    ("PYTHONOPTIMIZE", "1"),
    ("TORCH_COMPILE_JOB_ID", "me"),
    ("TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE", "1"),
    ("TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE", "1"),
    ("TORCH_CACHING_PRECOMPILE", "1"),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_switches_that_spoil_a_run_are_refused_and_said_how_to_mend(name: str, value: str) -> None:
    (refused,) = refusals({name: value, "PATH": "/bin"})
    assert str(refused).startswith(f"{name}={value!r} ")
    assert "unset it" in str(refused)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCHDYNAMO_DISABLE", "0"),
        ("TORCH_COMPILE_DISABLE", "0"),
        ("TORCHDYNAMO_SUPPRESS_ERRORS", ""),
        ("TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE", "0"),
        ("TORCH_LOGS", "dynamo"),
        ("PYTHONOPTIMIZE", ""),
    ],
)
def test_what_does_no_harm_is_let_through(name: str, value: str) -> None:
    assert refusals({name: value}) == []


def test_only_what_shifts_counts_can_be_allowed() -> None:
    env = {"TORCH_COMPILE_JOB_ID": "me", "TORCHDYNAMO_DISABLE": "1"}
    assert [refused.name for refused in refusals(env, allowed=list(env))] == ["TORCHDYNAMO_DISABLE"]
    assert unknown_allowances(list(env)) == ["TORCHDYNAMO_DISABLE"]
    assert "TORCH_COMPILE_JOB_ID" in allowable_names()


def test_what_matters_is_recorded_and_secrets_are_not() -> None:
    env = {"TORCH_LOGS": "x", "NVTE_DEBUG": "1", "CUDA_VISIBLE_DEVICES": "0", "HOME": "/h", "HTTPS_PROXY": "u:p@h"}
    assert recorded(env) == {"CUDA_VISIBLE_DEVICES": "0", "NVTE_DEBUG": "1", "TORCH_LOGS": "x"}


def test_threads_are_set_only_where_the_user_did_not() -> None:
    assert child_defaults({}) == {"OMP_NUM_THREADS": "1"}
    assert child_defaults({"OMP_NUM_THREADS": "4"}) == {}
    assert of_run({}) == {"OMP_NUM_THREADS": "1 (set by the harness)"}
    assert of_run({"OMP_NUM_THREADS": "4"}) == {"OMP_NUM_THREADS": "4"}


@pytest.mark.parametrize("name", ["TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"])
@pytest.mark.parametrize("value", ["", "0", "1", "true", "off", " "])
def test_the_front_refuses_what_would_make_every_cell_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    in_cells = [reason for reason in compile_switches() if reason.startswith(name)]
    assert [refused.name for refused in refusals({name: value})] == [name] * len(in_cells)
