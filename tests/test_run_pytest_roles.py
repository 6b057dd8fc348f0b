"""What pytest is told of a worker's death."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.run import run_dir
from harness.run.leases import LeaseBook
from harness.run.plan_file import Round
from harness.run.pytest_roles import Workers, _status_of, amend, cell_name, is_users_interrupt
from harness.run.reconcile import Reconciled
from harness.types import Verdict
from tests.support.cells import cell, plan, result
from tests.support.fake_gpus import gpu

pytest_plugins = ["pytester"]


def crash_report() -> pytest.TestReport:
    return pytest.TestReport("m.yaml::x", ("m.yaml", None, "m.yaml"), {}, "failed", "worker 'gw0' crashed", "call")


def test_a_red_cell_stays_failed_with_what_the_journal_knows() -> None:
    report = crash_report()
    red = result(cell(0), Verdict.CRASH, reason="Segmentation fault", detail="the stack")
    amend(report, Reconciled((red,)), cell(0).id)
    assert (report.outcome, report.longrepr) == ("failed", "crash: Segmentation fault\n\nthe stack")
    assert report.location[2] == cell(0).id


@pytest.mark.parametrize(
    ("verdict", "gates", "outcome"),
    [
        (Verdict.PASS, True, "passed"),  # it died after its result was recorded
        (Verdict.XFAIL, True, "skipped"),
        (Verdict.CRASH, False, "skipped"),  # quarantined
    ],
)
def test_a_cell_that_gates_nothing_is_no_failure(verdict: Verdict, gates: bool, outcome: str) -> None:
    report = crash_report()
    amend(report, Reconciled((result(cell(0), verdict, gates=gates),)), cell(0).id)
    assert report.outcome == outcome


def test_a_cell_that_was_blamed_before_it_was_started_is_no_failure_yet() -> None:
    report = crash_report()
    unstarted = Reconciled((result(cell(0), Verdict.ERROR),), unstarted=(cell(0).id,))
    amend(report, unstarted, cell(0).id)
    assert report.outcome == "skipped"
    assert "it will be started again" in str(report.longrepr)


def test_how_a_worker_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import os; os._exit(7)"])
    assert _status_of(SimpleNamespace(gateway=SimpleNamespace(_io=SimpleNamespace(popen=process)))) == 7
    assert _status_of(SimpleNamespace(gateway=SimpleNamespace())) is None


def test_only_the_user_interrupts() -> None:
    def seen(error: BaseException) -> bool:
        with pytest.raises(BaseException) as excinfo:
            raise error
        return is_users_interrupt(excinfo)

    assert seen(KeyboardInterrupt())
    assert seen(pytest.exit.Exception("quit"))
    assert not seen(pytest.Session.Interrupted("stopping after 1 failures"))


def test_cell_of_a_node_id() -> None:
    assert cell_name("configs/ci.yaml::toy[a=b]") == "toy[a=b]"
    assert cell_name("ci.yaml") == ""


def test_workers_get_a_gpu_each_before_they_are_started_and_it_is_free_once_they_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester
) -> None:
    monkeypatch.setenv("FP8_HARNESS_LEASE_DIR", str(tmp_path / "leases"))
    run = run_dir.create("r1", str(tmp_path / "out"))
    gpus = (gpu(0, 7000), gpu(1, 7000))
    workers = Workers(tmp_path / "m.yaml", run, plan(2, gpus=gpus), Round(1, ()))
    specs = [SimpleNamespace(env={}), SimpleNamespace(env={})]
    workers.pytest_xdist_setupnodes(pytester.parseconfig(), specs)
    assert [spec.env["CUDA_VISIBLE_DEVICES"] for spec in specs] == ["0", "1"]
    book = LeaseBook(tmp_path / "leases")
    assert book.free(gpus) == {0: 0, 1: 0}
    workers.give_gpus_back()
    assert book.free(gpus) == {0: 1, 1: 1}
