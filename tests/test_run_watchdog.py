from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HANGS = {
    "python": "while True: pass",
    "C with the GIL": "import ctypes; ctypes.PyDLL(None).sleep(30)",
}
SCRIPT = """
import sys
from pathlib import Path
from harness.run.watchdog import Watchdog
dog = Watchdog(Path(sys.argv[1]))
"""


def run(body: str, path: Path) -> tuple[int, str]:
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", SCRIPT + body, str(path)], cwd=root, timeout=20, check=False)
    return done.returncode, path.read_text()


@pytest.mark.parametrize("hang", HANGS)
def test_a_hang_ends_the_process_and_leaves_its_stack(tmp_path: Path, hang: str) -> None:
    code, text = run(f"dog.arm(0.3)\n{HANGS[hang]}", tmp_path / "stack.txt")
    assert code == 1
    assert text.startswith("Timeout (")
    assert "<string>" in text


def test_a_cell_that_ends_in_time_leaves_nothing(tmp_path: Path) -> None:
    code, text = run("import time\ndog.arm(0.2)\ndog.disarm()\ntime.sleep(0.5)", tmp_path / "stack.txt")
    assert (code, text) == (0, "")


def test_a_fatal_signal_leaves_its_stack_even_where_faulthandler_was_taken_away(tmp_path: Path) -> None:
    body = "import ctypes, faulthandler\nfaulthandler.disable()\ndog.arm(None)\nctypes.string_at(0)"
    code, text = run(body, tmp_path / "stack.txt")
    assert code == -11
    assert "Segmentation fault" in text


def test_a_new_cell_forgets_the_stacks_of_the_last(tmp_path: Path) -> None:
    body = "import faulthandler\nfaulthandler.dump_traceback(file=dog._file)\ndog.arm(5)\ndog.close()"
    assert run(body, tmp_path / "stack.txt") == (0, "")
