"""README says what the commands print; here they are run and compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def run(*arguments: str, code: int) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def told_after(command: str) -> list[str]:
    """The lines that README shows below ``$ command``, without those that stand for others ("...")."""
    block = README.split(f"    $ {command}\n", 1)[1].split("\n\n", 1)[0]
    return [line.strip() for line in block.splitlines() if line.strip() not in ("", "...")]


def test_first_screen_the_plain_test_is_green() -> None:
    told = told_after("python -m pytest -q examples/thirty_seconds/test_plain.py")
    output = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/thirty_seconds/test_plain.py", code=0)
    assert told == ["1 passed"]
    assert "1 passed" in output


def test_first_screen_the_harness_is_red(tmp_path: Path) -> None:
    told = told_after("python runner.py --matrix examples/thirty_seconds/broken.yaml")
    report = ("--report-dir", str(tmp_path / "report"))
    output = run("runner.py", "--matrix", "examples/thirty_seconds/broken.yaml", *report, code=1)
    lines = [line.strip() for line in output.splitlines()]
    assert len(told) > 5
    missing = [line for line in told if line not in lines]
    assert missing == []


def test_nested_example_is_the_file_and_prints_what_is_told() -> None:
    source = (ROOT / "examples" / "nested_autocast.py").read_text()
    body = source.split("\n\n", 1)[1].rstrip()
    shown = "\n".join(f"    {line}" if line else "" for line in body.splitlines())
    assert shown in README
    (told,) = told_after("python examples/nested_autocast.py")
    assert run("examples/nested_autocast.py", code=0).strip() == told


def test_scale_wasted_is_caught_as_promised(tmp_path: Path) -> None:
    command = next(line.strip() for line in README.splitlines() if "reference+scale_wasted" in line)
    arguments = command.split()[1:]
    selection = ("--set", "backend=eager", "--set", "arch=cpu", "-k", "current or nvfp4", "-n", "1")
    output = run(*arguments, *selection, "--report-dir", str(tmp_path / "report"), code=1)
    assert "numerics.scales" in output


PROSE = "\n".join(line for line in README.splitlines() if not line.startswith("    "))


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", PROSE))))
def test_links_exist(target: str) -> None:
    assert (ROOT / target).exists()
