"""GPUs shared out to real processes of the front and of plain pytest, on machines that only nvidia-smi tells of."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.run.gpus import Gpu
from harness.run.journal import Record, read_journal
from harness.run.leases import LeaseBook
from harness.run.plugin import pytest_xdist_auto_num_workers
from harness.types import RETIRE_WORKER
from tests.support.fake_gpus import device, machine
from tests.support.running import Ran, environment, front, front_command, plain, write_matrix

THREE = [device(n, "NVIDIA L4", 23034, 7000) for n in range(3)]
TORCH_PLUGIN = "tests.support.fake_cells,tests.support.imports_torch"


@pytest.fixture
def gpus(tmp_path: Path) -> dict[str, str]:
    """Three L4 with room for one worker each, of which the caller shows the third and the first."""
    return {**machine(tmp_path, THREE), "CUDA_VISIBLE_DEVICES": "2,0", "FAKE_SAYS_GPU": "1"}


def journal(ran: Ran, kind: str) -> list[Record]:
    return list(read_journal(ran.report / "process" / "journal").of_type(kind))


def saw(ran: Ran) -> Mapping[str, set[str]]:
    """By worker, what its cells found in CUDA_VISIBLE_DEVICES."""
    found: dict[str, set[str]] = {}
    for result in ran.results.values():
        told = [note.partition("=")[2] for note in result.notes if note.startswith("CUDA_VISIBLE_DEVICES=")]
        found.setdefault(result.worker, set()).update(told)
    return found


def test_each_worker_and_each_that_replaces_one_sees_one_gpu(tmp_path: Path, gpus: dict[str, str]) -> None:
    """More workers than fit: warned of, and done."""
    write_matrix(tmp_path, 5)
    ran = front(tmp_path, "-n", "3", "--isolate", **gpus)
    assert ran.code == 0, ran.output
    leased = {record.worker: record.data["gpu"] for record in journal(ran, "lease")}
    assert len(leased) == 5, "a process for each cell"
    first = {name: leased[name]["token"] for name in ("gw0", "gw1", "gw2") if name in leased}
    assert first.items() <= {"gw0": "2", "gw1": "0", "gw2": "2"}.items()
    assert saw(ran) == {worker: {seen["token"]} for worker, seen in leased.items()}
    assert {seen["token"] for seen in leased.values()} == {"2", "0"}
    for result in ran.results.values():
        index = leased[result.worker]["index"]
        uuid = ("GPU-2222-2", "GPU-0000-0")[index]
        assert result.gpu == {"index": index, "name": "NVIDIA L4", "uuid": uuid, "alone": False}
    assert ran.run["env"]["CUDA_VISIBLE_DEVICES"] == "2,0", "the caller's own setting"
    warning = "3 workers were asked for and 2 fit into free GPU memory: cells may run out of it"
    assert ran.output.startswith(f"warning: {warning}\n")
    assert warning in ran.run["notes"]


def test_a_lost_context_and_a_lack_of_memory_cost_no_other_cell(tmp_path: Path, gpus: dict[str, str]) -> None:
    write_matrix(tmp_path, 10)
    ran = front(tmp_path, "-n", "2", faults={0: "segv", 3: "poison", 6: "oom_once"}, **gpus)
    assert ran.code == 1, ran.output
    assert {seed: verdict for seed, verdict in ran.verdicts.items() if verdict != "pass"} == {
        0: "crash",
        3: "error",
        6: "flaky",
    }
    assert ran.results[0].gpu["name"] == "NVIDIA L4", "told by the journal, since its process is gone"
    _poisoned(ran)
    _alone(ran)


def _poisoned(ran: Ran) -> None:
    """The cell is red, and its process ran nothing more."""
    result = ran.results[3]
    assert (result.verdict.value, RETIRE_WORKER in result.notes) == ("error", True)
    records = [record for record in journal(ran, "start") if record.worker == result.worker]
    assert records[-1].cell_id == result.id
    assert ran.run["blame"] == "product"


def _alone(ran: Ran) -> None:
    """Out of memory: once more, when every other process is gone, on a GPU that nobody else may lease."""
    result = ran.results[6]
    assert (result.verdict.value, result.worker) == ("flaky", "main")
    assert [attempt.verdict.value for attempt in result.attempts] == ["oom", "pass"]
    assert result.gpu["alone"]
    assert result.attempts[1].gpu == "GPU 0 (NVIDIA L4), alone, 16034 MiB in use before"
    assert "retried alone in a fresh process after oom" in result.notes[-1]
    lease = journal(ran, "lease")[-1]
    assert (lease.worker, lease.data["alone"]) == ("main", True)
    assert lease.time > max(record.time for record in journal(ran, "end") if record.round == 1)
    assert "on GPU 0 (NVIDIA L4), alone" in (ran.report / "report.html").read_text()


def test_a_second_run_waits_for_the_first_and_says_so(tmp_path: Path, gpus: dict[str, str]) -> None:
    write_matrix(tmp_path, 2)
    env = {**machine(tmp_path, [device(0, "small", 6000)]), "CUDA_VISIBLE_DEVICES": "0"}
    first = subprocess.Popen(
        front_command("-n", "1", "--report-dir", "first"),
        cwd=tmp_path,
        env=environment(tmp_path, {0: "slow", 1: "slow"}, env),
        stdout=subprocess.DEVNULL,
    )
    small = (Gpu(0, "0", "GPU-0000-0", "", 6000),)
    book = LeaseBook(Path(env["FP8_HARNESS_LEASE_DIR"]))
    deadline = time.monotonic() + 30
    while not book.directory.is_dir() or book.free(small) != {0: 0}:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    second = front(tmp_path, "-n", "1", **env)
    assert first.wait() == 0
    assert second.code == 0, second.output
    assert "waiting for a GPU for 1 worker(s): 0 of 1 slots free on GPU 0 (small); held by process" in second.output
    ends = read_journal(tmp_path / "first" / "process" / "journal").of_type("end")
    assert min(record.time for record in journal(second, "lease")) > max(record.time for record in ends)


def test_a_plain_pytest_whose_conftest_imports_torch(tmp_path: Path, gpus: dict[str, str]) -> None:
    """A worker has its GPU before a conftest is read; a pytest that runs cells itself can't have one any more."""
    write_matrix(tmp_path, 4)
    (tmp_path / "conftest.py").write_text("import tests.support.imports_torch\n")
    log = tmp_path / "torch.txt"
    ran = plain(tmp_path, "-n", "2", FAKE_TORCH=str(log), **gpus)
    assert ran.code == 0, ran.output
    assert Counter(log.read_text().split("\n")[:-1]) == Counter(["none 2,0", "gw0 2", "gw1 0"])
    assert saw(ran) == {"gw0": {"2"}, "gw1": {"0"}}
    refused = plain(tmp_path, "-n", "0", FAKE_TORCH=str(log), **gpus)
    assert refused.code == 4, refused.output
    assert "torch was imported before GPU 0 (NVIDIA L4) was leased; workers (-n 1)" in refused.output
    assert len(list((tmp_path / "reports").glob(".*"))) == 0, "a refused run leaves nothing"


def test_torch_in_a_process_of_the_front_before_its_lease_is_an_internal_error(
    tmp_path: Path, gpus: dict[str, str]
) -> None:
    write_matrix(tmp_path, 1)
    ran = front(tmp_path, "-n", "0", PYTEST_PLUGINS=TORCH_PLUGIN, FAKE_TORCH=str(tmp_path / "torch.txt"), **gpus)
    assert ran.code == 3, ran.output
    assert "torch was imported before GPU 0 (NVIDIA L4) was leased" in ran.output


def test_plain_pytest_gives_its_gpu_back_before_the_cell_that_must_be_alone(
    tmp_path: Path, gpus: dict[str, str]
) -> None:
    write_matrix(tmp_path, 3)
    env = {**gpus, **machine(tmp_path, [device(0, "small", 6000)]), "CUDA_VISIBLE_DEVICES": "0"}
    ran = plain(tmp_path, "-n", "0", faults={1: "oom_once"}, **env)
    assert ran.verdicts == {0: "pass", 1: "flaky", 2: "pass"}, ran.output
    assert [attempt.gpu for attempt in ran.results[1].attempts] == [
        "GPU 0 (small)",
        "GPU 0 (small), alone, 0 MiB in use before",
    ]


def test_auto_under_plain_pytest_counts_gpu_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = write_matrix(tmp_path, 2)
    config = SimpleNamespace(args=[str(matrix)])
    for name, value in machine(tmp_path, [device(0, "small", 6000)]).items():
        monkeypatch.setenv(name, value)
    assert pytest_xdist_auto_num_workers(config) == 1  # type: ignore[arg-type]
    assert pytest_xdist_auto_num_workers(SimpleNamespace(args=["tests"])) is None  # type: ignore[arg-type]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert pytest_xdist_auto_num_workers(config) is None  # type: ignore[arg-type]
