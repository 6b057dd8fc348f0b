from __future__ import annotations

import io

import pytest
from rich.console import Console

from harness.cli.option import parse
from harness.cli.output import console_for, progress_for, verbosity_of
from harness.cli.run_options import RUN_OPTIONS


def styled(console: Console) -> bool:
    console.file = io.StringIO()
    console.print("[bold red]text")
    return "\x1b[" in console.file.getvalue()


def test_colour_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert styled(console_for("always"))
    assert not styled(console_for("auto")), "no terminal here"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert styled(console_for("auto"))
    assert not styled(console_for("never"))


def test_colour_without_a_terminal_gets_no_moving_display() -> None:
    assert not console_for("always").is_terminal


def test_a_debugger_shares_the_terminal_with_plain_lines_only(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(force_terminal=True)
    with progress_for(console, 1, 0, interactive=True) as progress:
        progress.started("a", "main")
    assert "\x1b[" not in capsys.readouterr().out


@pytest.mark.parametrize(("words", "expected"), [([], 0), (["-q"], -1), (["-v"], 1), (["-q", "-v"], 0)])
def test_verbosity(words: list[str], expected: int) -> None:
    assert verbosity_of(parse(RUN_OPTIONS, words, {})) == expected
