"""The loop of rounds, with rounds that only write what a pytest would have written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.run import run_dir, supervise
from harness.run.journal import JournalWriter, Process, Record, read_journal
from harness.run.plan_file import Round, RunPlan
from harness.run.rounds import RoundEnd
from harness.run.run_dir import RunDir
from harness.run.supervise import Observer, Supervisor
from harness.types import CellResult, Verdict
from tests.support.cells import Book, cell, plan, result

Act = Callable[[JournalWriter, Round], int | None]


class FakeRounds:
    """Stands in for run_round: the n-th round does what the n-th act does; the last one repeats."""

    def __init__(self, *acts: Act) -> None:
        self.acts = acts
        self.entries: list[Round] = []
        self.arguments: list[dict[str, Any]] = []

    def __call__(self, run: RunDir, of: RunPlan, entry: Round, **arguments: Any) -> RoundEnd:
        act = self.acts[min(len(self.entries), len(self.acts) - 1)]
        self.entries.append(entry)
        self.arguments.append(arguments)
        worker = f"gw{entry.number}" if arguments["workers"] else "main"
        status = act(JournalWriter(run.journal, worker, entry.number), entry)
        for record in read_journal(run.journal).records:
            if record.round == entry.number:
                arguments["watch"](record)
        return RoundEnd(entry, arguments["workers"], status, log="pytest.log")


def ends(*verdicts: Verdict) -> Act:
    """The first cells of the round end with these verdicts, then pytest ends."""

    def act(journal: JournalWriter, entry: Round) -> int:
        for cell_id, verdict in zip(entry.ids, verdicts, strict=False):
            journal.write("start", id=cell_id, attempt=entry.attempt)
            journal.write("end", result=result(_cell(cell_id), verdict), attempt=entry.attempt)
        return 0

    return act


def all_pass(journal: JournalWriter, entry: Round) -> int | None:
    return ends(*[Verdict.PASS] * len(entry.ids))(journal, entry)


def dies_in_first(journal: JournalWriter, entry: Round) -> int:
    journal.write("start", id=entry.ids[0], attempt=entry.attempt)
    return -11


def does_nothing(journal: JournalWriter, entry: Round) -> int:
    return 3


def _cell(cell_id: str) -> Any:
    return cell(int(cell_id.partition("=")[2].rstrip("]")))


@pytest.fixture
def supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Supervisor, FakeRounds]]:
    monkeypatch.chdir(tmp_path)

    def make(count: int, *acts: Act, workers: int = 0, **changes: Any) -> tuple[Supervisor, FakeRounds]:
        rounds = FakeRounds(*acts)
        monkeypatch.setattr(supervise, "run_round", rounds)
        made = plan(count, **changes)
        order = [one.id for one in made.cells]
        return Supervisor(run_dir.create("r1", "out"), made, order, workers), rounds

    return make


Make = Callable[..., tuple[Supervisor, FakeRounds]]


def verdicts(state: Any) -> list[str]:
    return [one.verdict.value for one in state.results]


def test_one_round_is_enough_when_nothing_happens(supervised: Make) -> None:
    supervisor, rounds = supervised(3, all_pass)
    assert verdicts(supervisor.complete()) == ["pass"] * 3
    assert rounds.entries == [Round(1, tuple(supervisor.order))]
    assert not supervisor.stuck


def test_what_a_dead_pytest_did_not_reach_is_started_again_and_the_crasher_is_not(supervised: Make) -> None:
    supervisor, rounds = supervised(4, ends(Verdict.PASS), dies_in_first, all_pass)
    assert verdicts(supervisor.complete()) == ["pass", "crash", "pass", "pass"]
    assert [entry.ids for entry in rounds.entries[1:]] == [
        tuple(cell(seed).id for seed in (1, 2, 3)),
        tuple(cell(seed).id for seed in (2, 3)),
    ]


def test_rounds_that_start_nothing_end_the_run(supervised: Make) -> None:
    supervisor, rounds = supervised(2, does_nothing)
    state = supervisor.complete()
    assert verdicts(state) == ["error", "error"]
    assert state.results[0].reason == "not run: pytest ended with exit code 3 in round 2"
    assert (len(rounds.entries), supervisor.stuck) == (2, True)


def test_every_round_that_starts_a_cell_counts_as_progress(supervised: Make) -> None:
    supervisor, rounds = supervised(12, dies_in_first)
    assert verdicts(supervisor.complete()) == ["crash"] * 12
    assert (len(rounds.entries), supervisor.stuck) == (12, False)


@pytest.mark.parametrize("verdict", [Verdict.INFRA, Verdict.OOM])
def test_a_retry_comes_last_alone_in_its_own_process(supervised: Make, verdict: Verdict) -> None:
    supervisor, rounds = supervised(3, ends(Verdict.PASS, verdict, Verdict.PASS), all_pass, workers=2)
    state = supervisor.complete()
    assert verdicts(state) == ["pass", "pass" if verdict is Verdict.INFRA else "flaky", "pass"]
    assert rounds.entries[1:] == [Round(2, (cell(1).id,), attempt=2)]
    assert [one["workers"] for one in rounds.arguments] == [2, 0]


def test_a_retry_that_starts_nothing_is_not_repeated(supervised: Make) -> None:
    supervisor, rounds = supervised(1, ends(Verdict.INFRA), does_nothing)
    assert verdicts(supervisor.complete()) == ["infra"]
    assert len(rounds.entries) == 2


def test_x_starts_nothing_more_and_names_what_it_left_out(supervised: Make) -> None:
    supervisor, rounds = supervised(4, ends(Verdict.PASS, Verdict.FAIL), maxfail=1)
    state = supervisor.complete()
    assert verdicts(state) == ["pass", "fail", "skip", "skip"]
    assert (len(rounds.entries), len(state.left_out)) == (1, 2)


def test_x_counts_what_earlier_rounds_failed(supervised: Make) -> None:
    supervisor, rounds = supervised(4, dies_in_first, ends(Verdict.PASS, Verdict.FAIL), maxfail=2)
    assert verdicts(supervisor.complete()) == ["crash", "pass", "fail", "skip"]
    assert [one["maxfail"] for one in rounds.arguments] == [2, 1]


def test_x_goes_on_when_the_retry_took_its_reason_away(supervised: Make) -> None:
    supervisor, rounds = supervised(3, ends(Verdict.INFRA), all_pass, maxfail=1)
    assert verdicts(supervisor.complete()) == ["pass", "pass", "pass"]
    assert [entry.attempt for entry in rounds.entries] == [1, 2, 1]


def test_a_usage_error_ends_the_run_at_once(supervised: Make) -> None:
    def unusable(journal: JournalWriter, entry: Round) -> int:
        journal.write("usage", message="cases/mine.py:3: NameError")
        return 2

    supervisor, rounds = supervised(2, unusable)
    supervisor.complete()
    assert (supervisor.usage_error, len(rounds.entries)) == ("cases/mine.py:3: NameError", 1)


def test_a_worker_of_a_killed_pytest_is_the_machines_fault_and_its_cell_is_retried(supervised: Make) -> None:
    def killed(journal: JournalWriter, entry: Round) -> int:
        journal.write("start", id=entry.ids[0], attempt=1)
        return -9

    supervisor, _ = supervised(2, killed, all_pass, workers=2)
    state = supervisor.complete()
    assert verdicts(state) == ["pass", "pass"]
    assert [one.verdict.value for one in state.results[0].attempts] == ["infra", "pass"]
    assert "killed by SIGKILL" in state.results[0].attempts[0].reason


@pytest.mark.parametrize("stack", ["", "Fatal Python error: Segmentation fault\n"])
@pytest.mark.parametrize(
    ("workers", "of_worker", "of_pytest", "seen"),
    [
        (0, None, -11, -11),  # pytest ran the cell itself
        (1, -11, 0, -11),
        (1, None, 0, None),  # pytest's own end says nothing of a worker's
        (0, None, None, None),
    ],
)
def test_how_a_process_ended_is_what_was_seen_of_that_process(
    tmp_path: Path, stack: str, workers: int, of_worker: int | None, of_pytest: int | None, seen: int | None
) -> None:
    run = run_dir.create("r1", str(tmp_path / "out"))
    worker = "gw0" if workers else "main"
    book = Book().start(cell(0), worker=worker)
    if of_worker is not None:
        book.add("exit", worker="controller", pid=1, of="gw0", status=of_worker)
    process = Process(1, worker, 10)
    run.stack_file(process).write_text(stack)
    ends = [RoundEnd(Round(1, ()), workers, of_pytest)]
    assert supervise.post_mortems(run, book.journal, ends, 2.0)[process].status == seen


def test_a_stalled_round_is_a_timeout(supervised: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor, rounds = supervised(1, dies_in_first, workers=1)
    monkeypatch.setattr(
        supervise, "run_round", lambda *a, **k: RoundEnd(*(lambda e: (e.entry, 1, -9, True))(rounds(*a, **k)))
    )
    (found,) = supervisor.complete().results
    assert found.verdict is Verdict.TIMEOUT
    assert "did not even end itself" in found.reason


def test_the_observer_hears_of_each_cell_once(supervised: Make) -> None:
    told: list[CellResult] = []
    noted: list[str] = []
    supervisor, _ = supervised(3, ends(Verdict.INFRA), dies_in_first, all_pass)
    supervisor.observer = Observer(finished=told.append, note=noted.append)
    state = supervisor.complete()
    assert verdicts(state) == ["pass", "crash", "pass"]
    assert sorted(one.id for one in told) == [cell(seed).id for seed in range(3)]
    assert {one.id: one.verdict for one in told} == {one.id: one.verdict for one in state.results}
    assert noted[0] == "pytest ended with exit code 0 in round 1; 2 cells left: starting again"
    assert noted[-1].startswith("once more, alone in a fresh process")


def test_what_is_told_of_a_retried_cell_is_the_final_verdict(supervised: Make) -> None:
    told: list[str] = []
    supervisor, _ = supervised(1, ends(Verdict.OOM), all_pass)
    supervisor.observer = Observer(finished=lambda one: told.append(one.verdict.value))
    supervisor.complete()
    assert told == ["flaky"]


def test_a_crash_is_told_as_soon_as_its_worker_is_gone(supervised: Make) -> None:
    told: list[str] = []
    supervisor, _ = supervised(2, all_pass)
    supervisor.observer = Observer(finished=lambda one: told.append(f"{one.id} {one.verdict.value}"))
    journal = JournalWriter(supervisor.run.journal, "gw0", 1)
    journal.write("start", id=cell(0).id)
    controller = JournalWriter(supervisor.run.journal, "controller", 1)
    controller.write("exit", of="gw0", status=-9)
    start, exited = read_journal(supervisor.run.journal).records
    supervisor._watch(start)
    supervisor._watch(exited)
    assert told == [f"{cell(0).id} crash"]


def test_records_of_other_kinds_are_let_pass(supervised: Make) -> None:
    supervisor, _ = supervised(1, all_pass)
    supervisor._watch(Record("host", "gw0", 1, 1, 0.0, {}, "x:1"))
    assert verdicts(supervisor.reconciled()) == ["error"]
