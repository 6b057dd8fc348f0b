"""docs/selftest.md: the fault of your own that it shows is caught, from a directory that holds nothing but it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.support.running import ROOT, RUNNER

PAGE = (ROOT / "docs" / "selftest.md").read_text(encoding="utf-8")


def test_the_fault_of_your_own_is_caught(tmp_path: Path) -> None:
    begin, end = PAGE.index("    # my_faults.py"), PAGE.index("    python runner.py selftest --fault my_faults:FAULT")
    (tmp_path / "my_faults.py").write_text(textwrap.dedent(PAGE[begin:end]))
    command = [sys.executable, str(RUNNER), *PAGE[end:].split("\n")[0].split()[2:], "-n", "0"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exit code 0: 1 caught, each by the check it names" in done.stdout
