"""Leases, lack of memory and a lost context on a real GPU, through the real front. The rest is tested with fakes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from harness.run.journal import Record, read_journal
from harness.types import RETIRE_WORKER
from tests.support.running import Ran, run


@pytest.fixture(autouse=True)
def gpu() -> None:
    # Asked here and not at collection: initialising CUDA while collecting breaks forked workers.
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


def judged(directory: Path, providers: Sequence[str], seeds: int, *options: str) -> Ran:
    """The real front and real cells, eager backend, with the faults of tests/support/gpu_faults.py."""
    (directory / "m.yaml").write_text(
        "schema_version: 1\nname: m\n"
        "defaults: {case: toy_linear, recipe: float8_current_scaling, backend: eager, shape: [64, 128, 128]}\n"
        f"matrix:\n  provider: [{', '.join(providers)}]\n  seed: [{', '.join(map(str, range(seeds)))}]\n"
    )
    command = [sys.executable, "-m", "tests.support.gpu_faults", "--matrix", "m.yaml", *options]
    leases = str(directory / "leases")
    ran = run(directory, command, env={"PYTEST_PLUGINS": "tests.support.gpu_faults", "FP8_HARNESS_LEASE_DIR": leases})
    print(ran.output)
    return ran


def by_provider(ran: Ran, name: str) -> list:
    from harness.report import read_results

    return [result for result in read_results(ran.report) if result.provider == name]


def journal(ran: Ran, kind: str) -> list[Record]:
    return list(read_journal(ran.report / "process" / "journal").of_type(kind))


def test_each_worker_sees_exactly_one_gpu(tmp_path: Path) -> None:
    ran = judged(tmp_path, ["reference"], 6, "-n", "2")
    assert ran.code == 0
    hosts = journal(ran, "host")
    assert len(hosts) == 2
    assert [len(record.data["host"]["gpus"]) for record in hosts] == [1, 1]
    leased = {record.process: record.data["gpu"] for record in journal(ran, "lease")}
    assert len(leased) == 2
    for record in hosts:
        seen, told = record.data["host"]["gpus"][0], leased[record.process]
        assert told["name"] == seen["name"]
        assert told["uuid"].startswith("MIG-") or told["uuid"] == seen["uuid"], "the driver and CUDA mean the same GPU"
    for result in by_provider(ran, "reference"):
        assert (result.verdict.value, result.arch[:2]) == ("pass", "sm")
        assert result.gpu["uuid"]
        assert result.worker in ("gw0", "gw1")
    assert int(ran.run["host"]["worker_gpu_peak_mib"]) > 0


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_device_side_assert_is_its_cells_own(tmp_path: Path, workers: str) -> None:
    ran = judged(tmp_path, ["reference+device_assert", "reference"], 3, "-n", workers)
    assert (ran.code, ran.run["blame"]) == (1, "product")
    lasts = {record.process: record for record in journal(ran, "start")}
    poisoned = by_provider(ran, "reference+device_assert")
    for result in poisoned:
        assert (result.verdict.value, RETIRE_WORKER in result.notes) == ("fail", True), result
        assert "device-side assert" in result.reason + result.detail
        assert result.id in [record.cell_id for record in lasts.values()], "its process ran nothing more"
        assert [attempt.verdict.value for attempt in result.attempts] == ["fail"]
    assert len(poisoned) == 3
    assert [result.verdict.value for result in by_provider(ran, "reference")] == ["pass"] * 3


def test_what_never_fits_is_tried_alone_once(tmp_path: Path) -> None:
    ran = judged(tmp_path, ["reference+out_of_memory", "reference"], 2, "-n", "2")
    assert ran.code == 1
    for result in by_provider(ran, "reference+out_of_memory"):
        assert (result.verdict.value, result.worker, result.gpu["alone"]) == ("oom", "main", True)
        assert [attempt.verdict.value for attempt in result.attempts] == ["oom", "oom"]
        assert "alone" in result.attempts[1].gpu
    assert [result.verdict.value for result in by_provider(ran, "reference")] == ["pass"] * 2


def test_what_fits_alone_only_is_no_plain_green(tmp_path: Path) -> None:
    ran = judged(tmp_path, ["reference+hog"], 2, "-n", "2", "--timeout", "60")
    attempts = sorted(
        [attempt.verdict.value for attempt in result.attempts] for result in by_provider(ran, "reference+hog")
    )
    if torch.cuda.device_count() > 1:
        assert attempts == [["pass"], ["pass"]], "each has a GPU to itself"
        return
    assert ran.code == 1
    assert attempts in ([["oom", "pass"], ["pass"]], [["oom", "pass"], ["oom", "pass"]])
    flaky = [result for result in by_provider(ran, "reference+hog") if len(result.attempts) > 1]
    assert all(result.verdict.value == "flaky" and result.gpu["alone"] for result in flaky)
