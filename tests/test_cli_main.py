from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import main as cli
from harness.cli.errors import NothingToRun, UsageError
from tests.support.running import ROOT, RUNNER


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reprot"], "error: unknown command 'reprot' (did you mean report?)"),
        (["xyzzy"], "error: unknown command 'xyzzy'; commands: doctor, report, schema, selftest"),
        (["ci.yaml"], "error: unknown command 'ci.yaml' (did you mean --matrix ci.yaml?)"),
        ([], "error: no matrix: runner.py --matrix FILE"),
        (["--matrxi", "x"], "error: unknown option --matrxi (did you mean --matrix?)"),
        (["schema", "matrices"], "error: no schema 'matrices' (did you mean matrix?)"),
    ],
)
def test_a_wrong_command_line_is_exit_4_with_the_nearest_name(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 4
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UsageError("wrong"), 4, "error: wrong\n"),
        (NothingToRun("no cell"), 5, "nothing to run: no cell\n"),
        (KeyboardInterrupt(), 2, "interrupted\n"),
    ],
)
def test_how_a_command_may_end(
    error: BaseException,
    code: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(words: object) -> int:
        raise error

    monkeypatch.setattr(cli, "_load", lambda path: fail)
    assert cli.main(["report"]) == code
    assert capsys.readouterr().err == text


def test_a_defect_of_the_harness_is_an_internal_error_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_load", lambda path: lambda words: 1 // 0)
    assert cli.main(["report"]) == 3
    text = capsys.readouterr().err
    assert "ZeroDivisionError" in text
    assert "defect of the harness" in text


def test_every_command_can_be_loaded_and_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for name in cli.COMMANDS:
        with pytest.raises(SystemExit) as end:
            cli.main([name, "--help"])
        assert end.value.code == 0
        assert f"runner.py {name}" in capsys.readouterr().out


def script(*words: str, flags: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *flags, str(RUNNER), *words]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd="/", check=False)


def test_python_o_is_refused() -> None:
    for done in (script("--help", flags=("-O",)), script("--help", PYTHONOPTIMIZE="1")):
        assert (done.returncode, "error: python -O strips" in done.stderr) == (4, True)


def test_help_works_anywhere_and_imports_no_torch() -> None:
    done = script("--help", flags=("-X", "importtime"))
    assert (done.returncode, "--matrix FILE" in done.stdout) == (0, True)
    assert not [line for line in done.stderr.splitlines() if line.rpartition("|")[2].strip() == "torch"]


def test_a_missing_dependency_is_named_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "pydantic.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'pydantic'\", name='pydantic')\n"
    )
    done = script("--help", PYTHONPATH=str(tmp_path))
    assert done.returncode == 4
    assert done.stderr.startswith("error: No module named 'pydantic': run 'make run'")


def test_a_closed_pipe_is_no_traceback() -> None:
    command = f"{sys.executable} {RUNNER} schema | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT, check=False)
    assert "Traceback" not in done.stderr
