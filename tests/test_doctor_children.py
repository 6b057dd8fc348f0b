"""Children that answer, die, hang and lie: doctor has a word for each, in time. None of them imports torch."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from harness.doctor import children
from harness.doctor.children import Reply, ask, last_lines
from harness.doctor.questions import Request
from harness.run.postmortem import signal_name

ANSWER = "import sys; sys.stdout.write('noise'); open(sys.argv[1], 'w').write(sys.stdin.read())"


def child(text: str, seconds: float = 20.0) -> Reply:
    (reply,) = ask([Request(seconds)], os.environ, (sys.executable, "-S", "-c", text))
    return reply


def test_an_answer_is_read_whatever_was_printed() -> None:
    reply = child(ANSWER)
    assert reply.text.startswith('{"seconds": 20.0')
    assert (reply.ending, reply.output) == ("", ())


def test_replies_stand_in_the_order_of_requests() -> None:
    replies = ask([Request(20.0), Request(21.0)], os.environ, (sys.executable, "-S", "-c", ANSWER))
    assert [reply.text[:16] for reply in replies] == ['{"seconds": 20.0', '{"seconds": 21.0']


def test_a_crash_is_named_by_its_signal_and_its_last_words() -> None:
    reply = child("import os, sys; sys.stderr.write('free(): invalid pointer\\n'); sys.stderr.flush(); os.abort()")
    assert reply == Reply("", "was killed by SIGABRT", ("free(): invalid pointer",))


def test_a_segmentation_fault_is_told_with_the_frame_it_happened_in() -> None:
    text = "import faulthandler, sys; faulthandler.enable(); print('before', flush=True)\n"
    text += "def deep(n):\n    if n: deep(n - 1)\n    faulthandler._sigsegv()\ndeep(30)"
    reply = child(text)
    assert reply.ending == "was killed by SIGSEGV"
    assert reply.output[:2] == ("before", "Fatal Python error: Segmentation fault")
    assert "in deep" in "".join(reply.output)
    assert len(reply.output) == children.OUTPUT_LINES


def test_the_line_that_says_most() -> None:
    dump = (
        "before",
        "Fatal Python error: Aborted",
        "Current thread:",
        '  File "te.py", line 3 in load',
        '  File "a.py", line 1',
    )
    assert Reply("", "", dump).telling == 'File "te.py", line 3 in load'
    assert Reply("", "", ('  File "te.py", line 3', "OSError: x")).telling == "OSError: x"
    assert Reply("", "").telling == ""


def test_an_exception_is_told_by_the_end_of_its_traceback() -> None:
    reply = child("raise ImportError('libcublas.so.12: cannot open shared object file')")
    assert reply.ending == "ended with exit code 1 and no answer"
    assert reply.output[-1] == "ImportError: libcublas.so.12: cannot open shared object file"


def test_an_end_without_a_word() -> None:
    assert child("import os; os._exit(3)") == Reply("", "ended with exit code 3 and no answer")
    assert child("pass").ending == "ended with exit code 0 and no answer"


def test_a_hang_ends_in_time_with_what_it_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(children, "GRACE", 0.2)
    mark = tmp_path / "grandchild"
    text = f"import subprocess, time; own = subprocess.Popen(['sleep', '600']); out = open({str(mark)!r}, 'w')"
    text += "; out.write(str(own.pid)); out.close(); print('loading', flush=True); time.sleep(600)"
    began = time.monotonic()
    reply = child(text, seconds=0.8)
    assert reply == Reply("", "did not answer within 0.8 s and was killed", ("loading",))
    assert time.monotonic() - began < 10
    assert not running(int(mark.read_text()))


def test_a_child_that_ends_itself_in_time_says_where_it_hangs() -> None:
    text = "import faulthandler, time; faulthandler.dump_traceback_later(0.2, exit=True); time.sleep(600)"
    reply = child(text, seconds=20.0)
    assert reply.ending == "did not answer within 20 s and was killed"
    assert reply.output[0].startswith("Timeout (")
    assert reply.telling == 'File "<string>", line 1 in <module>'


def running(pid: int) -> bool:
    """False once a process is gone or only its entry is left (nobody reaps orphans in some containers)."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
        except OSError:
            return False
        time.sleep(0.02)
    return True


def test_an_interrupted_front_leaves_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def interrupt(self: children.Child) -> Reply:
        started.append(self._process.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(children.Child, "reply", interrupt)
    with pytest.raises(KeyboardInterrupt):
        child("import time; time.sleep(600)")
    assert not running(started[0])


def test_a_child_that_cannot_be_started_is_a_reply() -> None:
    (reply,) = ask([Request(1.0)], os.environ, ("/no/such/python",))
    assert reply == Reply("", "could not be started: No such file or directory")


def test_signals_without_a_name() -> None:
    assert signal_name(signal.SIGKILL) == "SIGKILL"
    assert signal_name(63) == "signal 63"


def test_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "output"
    assert last_lines(path) == ()
    path.write_text('raise E\n    ^^^~~\n  File "<frozen importlib._bootstrap>", line 3 in load\nE: x\n')
    assert last_lines(path) == ("raise E", "E: x")
    path.write_bytes(b"x" * 40_000 + b"\n\n \xff\n" + b"".join(b"line %d\n" % n for n in range(5)))
    assert last_lines(path)[-5:] == tuple(f"line {n}" for n in range(5))
    assert len(last_lines(path)) <= children.OUTPUT_LINES
    path.write_text(
        "\n".join([*(f"old {n}" for n in range(9)), "Timeout (0:01:00)!", *(f"frame {n}" for n in range(9))])
    )
    assert last_lines(path) == ("old 7", "old 8", "Timeout (0:01:00)!", *(f"frame {n}" for n in range(5)))
