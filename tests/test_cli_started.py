"""How a command is written so that the shell it was started from can start it again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from harness.cli import started
from tests.support.running import ROOT


def interpreter(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(sys.executable)
    return path


def test_below_the_working_directory_it_is_relative_elsewhere_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(interpreter(tmp_path / ".venv" / "bin" / "python")))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    assert started.front_words() == (".venv/bin/python", str(ROOT / "runner.py"))
    monkeypatch.chdir(ROOT)
    assert started.front_words() == (str(tmp_path / ".venv" / "bin" / "python"), "runner.py")
    monkeypatch.chdir(ROOT / "configs")
    assert started.front_words()[1] == str(ROOT / "runner.py")


def test_an_interpreter_has_its_bare_name_only_where_the_shell_would_find_that_very_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = (interpreter(tmp_path / name / "bin" / "python") for name in ("own", "other"))
    named = interpreter(own.with_name("python3"))
    for path, executable, word in (
        (own.parent, own, "python"),
        (other.parent, own, str(own)),
        (own.parent, named, "python3"),
    ):
        monkeypatch.setattr(sys, "executable", str(executable))
        monkeypatch.setenv("PATH", os.fspath(path))
        assert started.front_words()[0] == word
