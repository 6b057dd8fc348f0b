import dataclasses
import shlex

from harness.report.commands import next_command, repro_words
from harness.report.groups import group_reds
from harness.types import Verdict
from tests.support.report_fakes import BYTES, ci_axes, green_results, mixed_results, passed, red, run_of


def test_the_recorded_repro_is_used_else_one_is_made() -> None:
    result = passed(ci_axes()[3])
    run = run_of([result])
    assert repro_words(run, result) == [
        "python",
        "runner.py",
        "--matrix",
        "configs/ci.yaml",
        "--cell",
        result.id,
        "-n",
        "0",
    ]
    command = f"python runner.py --matrix 'my ci.yaml' --set seed=1 --cell {shlex.quote(result.id)} -n 0"
    words = repro_words(run, dataclasses.replace(result, repro=command))
    assert words[3:7] == ["my ci.yaml", "--set", "seed=1", "--cell"]
    assert words[7] == result.id
    assert repro_words(run, dataclasses.replace(result, repro="broken 'quote")) == ["broken 'quote"]


def test_next_command_follows_from_how_the_run_ended() -> None:
    results = mixed_results()
    groups, run = group_reds(results), run_of(results)
    assert next_command(run, groups) == repro_words(run, groups[0].representative)
    assert next_command(dataclasses.replace(run, exit_code=2), groups) == list(run.command)
    assert next_command(dataclasses.replace(run, exit_code=3), groups) == list(run.command)
    assert next_command(run_of(green_results()), []) == []
    plan = ["python", "runner.py", "--matrix", "configs/ci.yaml", "--plan"]
    assert next_command(run_of(green_results(), require="native"), []) == plan
    assert next_command(run_of([]), []) == plan


def test_a_failed_machine_asks_for_the_same_run_again() -> None:
    results = [red(passed(ci_axes()[0]), BYTES, verdict=Verdict.INFRA)]
    run = run_of(results)
    assert next_command(run, group_reds(results)) == list(run.command)


def test_a_quarantined_red_is_nothing_to_do() -> None:
    results = [*green_results()[1:], red(passed(ci_axes()[0]), BYTES, gates=False)]
    assert next_command(run_of(results), group_reds(results)) == []


def test_unmet_evidence_beside_a_quarantined_red_asks_for_the_plan() -> None:
    results = [*green_results()[1:], red(passed(ci_axes()[0]), BYTES, gates=False)]
    run = run_of(results, require="native")
    assert run.exit_code == 1
    assert next_command(run, group_reds(results))[-1] == "--plan"
