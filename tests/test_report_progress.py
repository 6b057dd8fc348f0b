import io
import threading
import time

import pytest
from rich.cells import cell_len
from rich.console import Console

from harness.report import Progress
from harness.types import Finding, Verdict
from tests.support.report_fakes import BYTES, ci_axes, green_results, mixed_results, passed, red


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def plain(results, *, verbosity=0, seconds=1.0, total=None):
    stream, clock = io.StringIO(), Clock()
    with Progress(Console(file=stream, width=80), total or len(results), verbosity=verbosity, clock=clock) as progress:
        for result in results:
            progress.started(result.id, "gw0")
            clock.now += seconds
            progress.finished(result)
    return stream.getvalue()


def joined(text):
    """Without the line breaks that the width asked for."""
    return " ".join(text.split()).replace(", nesting", ",nesting")


def wait_for(text, stream, seconds=10.0):
    deadline = time.monotonic() + seconds
    while text not in stream.getvalue():
        assert time.monotonic() < deadline, stream.getvalue()
        time.sleep(0.01)


def test_reds_are_shown_at_once_with_their_first_finding() -> None:
    results = [passed(ci_axes()[10]), red(passed(ci_axes()[11]), BYTES)]
    text = joined(plain(results, total=9))
    assert text == f"[2/9] F fail {results[1].id} {BYTES}"


def test_a_cause_is_told_once() -> None:
    reds = [red(passed(axes), BYTES) for axes in ci_axes()[10:13]]
    text = joined(plain(reds, total=9))
    assert text.count("the oracle's codes") == 1
    assert text.count("the same again: numerics.codes") == 2
    other = plain([reds[0], red(passed(ci_axes()[20]), Finding("another", "a", "b"))], total=9)
    assert "another: expected a, got b" in other


def test_one_cell_that_hangs_does_not_make_hours_of_the_time_left() -> None:
    results, stream, clock = green_results(), io.StringIO(), Clock()
    with Progress(Console(file=stream, width=80), 500, clock=clock) as progress:
        progress.started("it hangs", "gw0")
        for result in results[:2]:
            progress.started(result.id, "gw1")
            clock.now += 1.0
            progress.finished(result)
        clock.now += 98.0
        progress.started(results[2].id, "gw1")
        clock.now += 1.0
        progress.finished(results[2])
    assert joined(stream.getvalue()) == "[ 3/500] 3 pass; about 8 min 03 s left"


def test_cells_that_nobody_saw_begin_are_counted_by_the_clock() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress(Console(file=stream, width=80), 70, clock=clock) as progress:
        for result in green_results()[:10]:
            clock.now += 1.0
            progress.finished(result)
    assert joined(stream.getvalue()) == "[10/70] 10 pass; about 1 min 00 s left"


def test_greens_are_counted_now_and_then_with_the_time_left() -> None:
    lines = plain(green_results()).splitlines()
    assert lines[0] == "[10/70] 10 pass; about 1 min 00 s left"
    assert lines[-1] == "[70/70] 70 pass; took 1 min 10 s"
    assert len(lines) == 7


def test_results_may_be_called_something_else() -> None:
    results = [passed(ci_axes()[10]), red(passed(ci_axes()[11]), BYTES), passed(ci_axes()[12])]
    stream = io.StringIO()
    words = {Verdict.PASS: "caught", Verdict.FAIL: "not caught"}
    with Progress(Console(file=stream, width=80), 3, word_of=lambda result: words[result.verdict]) as progress:
        for result in results:
            progress.finished(result)
    text = joined(stream.getvalue())
    assert "[2/3] F not caught " in text
    assert "[3/3] 2 caught, 1 not caught; took" in text


def test_verbose_names_every_cell_and_quiet_only_reds() -> None:
    results = mixed_results()
    assert plain(results, verbosity=1).count("] ") == 70
    quiet = plain(results, verbosity=-1)
    assert quiet.count("] ") == sum(result.verdict.is_red for result in results)


@pytest.mark.parametrize("verbosity", [-1, 0, 1])
def test_no_line_is_wider_than_eighty_columns(verbosity) -> None:
    results = [*mixed_results(), red(passed(ci_axes()[0], id="x" * 300), Finding("c", "漢" * 90, "\x1b[2J"))]
    text = plain(results, verbosity=verbosity)
    assert all(cell_len(line) <= 80 for line in text.splitlines())
    assert "\x1b" not in text


def test_a_silent_run_is_heard_of_and_says_what_runs() -> None:
    stream, clock = io.StringIO(), Clock()
    console = Console(file=stream, width=80)
    with Progress(console, 70, clock=clock, heartbeat=0.2) as progress:
        progress.started("toy_linear[nesting=deep]", "gw1")
        progress.started("toy_linear[nesting=flat]", "gw0")
        time.sleep(0.15)
        assert stream.getvalue() == ""  # by this clock no time has passed
        clock.now += 45
        wait_for("running", stream)
    beat = "[ 0/70] none done; 45 s so far; running toy_linear[nesting=deep] on gw1 for 45 s"
    assert beat in joined(stream.getvalue())
    assert stream.getvalue().count("running") == 1


def test_heartbeats_come_in_quiet_mode_too() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress(Console(file=stream, width=80), 5, verbosity=-1, clock=clock, heartbeat=0.2):
        clock.now += 31
        wait_for("[0/5] none done", stream)


def test_the_default_heartbeat_is_within_thirty_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress(Console(file=stream, width=80), 5, clock=clock):
        clock.now += 29
        wait_for("[0/5]", stream)


def test_nothing_is_left_running_behind_it() -> None:
    before = threading.active_count()
    with pytest.raises(RuntimeError, match="from inside"):
        with Progress(Console(file=io.StringIO(), width=80), 5):
            raise RuntimeError("from inside")
    assert threading.active_count() == before


def test_a_terminal_gets_one_moving_line_and_the_reds_above_it(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream, clock = io.StringIO(), Clock()
    console = Console(file=stream, width=80, force_terminal=True)
    with Progress(console, 70, clock=clock) as progress:
        progress.started("toy_linear[nesting=deep]", "gw1")
        for result in mixed_results()[:20]:
            clock.now += 1
            progress.finished(result)
        moving = progress._moving_line().plain.splitlines()
    assert moving[0].startswith("[20/70] [#####...............] about 50 s left; 16 pass, 2 skip, 2 fail")
    assert moving[1] == "toy_linear[nesting=deep] on gw1 for 20 s"
    text = stream.getvalue()
    assert "F fail" in text
    assert "\x1b[?25l" in text  # the cursor was hidden
    assert text.rstrip().endswith("\x1b[?25h") or "\x1b[?25h" in text  # and is back


def test_the_moving_line_fits_a_narrow_terminal(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    with Progress(Console(file=stream, width=40, force_terminal=True), 70) as progress:
        progress.started("x" * 200)
        for result in mixed_results():
            progress.finished(result)
        assert all(cell_len(line) <= 40 for line in progress._moving_line().plain.splitlines())


def test_a_dumb_terminal_gets_plain_lines(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = io.StringIO()
    with Progress(Console(file=stream, width=80, force_terminal=True), 1) as progress:
        progress.finished(passed(ci_axes()[10]))
    assert "\x1b[?25l" not in stream.getvalue()
    assert "[1/1] 1 pass" in stream.getvalue()


def test_notes_and_quarantined_reds_are_shown_as_what_they_are() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream, width=200), 3) as progress:
        progress.note("worker gw1 was replaced")
        progress.finished(red(passed(ci_axes()[10]), BYTES, gates=False))
        progress.finished(red(passed(ci_axes()[11]), verdict=Verdict.CRASH, reason="signal 11"))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "worker gw1 was replaced"
    assert lines[1].startswith("[1/3] q fail (quarantined) toy_linear[")
    assert lines[3].startswith("[2/3] C crash toy_linear[")
    assert lines[4] == "    signal 11"
