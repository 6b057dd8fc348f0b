"""The command itself, on real cells: what dies, hangs or lies is red, and the same plan gives the same verdicts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

MIXED = """
schema_version: 1
name: mixed
defaults: {case: toy_linear, recipe: float8_current_scaling, backend: eager}
matrix:
  provider:
    - reference
    - reference+segfault
    - reference+dies_before_report
    - reference+hang
    - reference+out_of_memory
    - reference+scale_wasted
  nesting: [flat]
include:
  - {provider: reference, recipe: mxfp8_block_scaling}
  - {provider: reference, recipe: float8_rowwise_scaling, nesting: nested}
"""

EXPECTED = {
    "reference": "pass",
    "reference+segfault": "crash",
    "reference+dies_before_report": "crash",
    "reference+hang": "timeout",
    "reference+out_of_memory": "oom",
    "reference+scale_wasted": "fail",
}

GREEN = """
schema_version: 1
name: green
defaults: {case: toy_linear, provider: reference, backend: eager}
matrix:
  recipe: [float8_current_scaling, float8_block_scaling, nvfp4_block_scaling]
  nesting: [flat, nested]
"""


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=400
    )


def runner(matrix: Path, report: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    front = str(ROOT / "runner.py")
    return command(front, "--matrix", str(matrix), "--report-dir", str(report), *arguments, cwd=matrix.parent)


def results(report: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (report / "results.jsonl").read_text().splitlines()]


def verdicts(report: Path) -> dict[str, object]:
    return {str(line["id"]): line["verdict"] for line in results(report)}


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.yaml"
    path.write_text(MIXED)
    return path


@pytest.fixture
def green(tmp_path: Path) -> Path:
    path = tmp_path / "green.yaml"
    path.write_text(GREEN)
    return path


def test_what_dies_hangs_or_lies_is_red_with_its_own_verdict_and_the_rest_goes_on(mixed: Path, tmp_path: Path) -> None:
    done = runner(mixed, tmp_path / "out", "-n", "2", "--timeout", "20")
    assert done.returncode == 1, done.stdout + done.stderr
    lines = results(tmp_path / "out")
    assert len(lines) == 8
    for line in lines:
        assert line["verdict"] == EXPECTED[str(line["provider"])], line
    by_provider = {line["provider"]: line for line in lines}
    assert "segfault.py" in str(by_provider["reference+segfault"]["detail"])
    assert "hang.py" in str(by_provider["reference+hang"]["detail"])
    assert "Traceback" not in done.stderr


def test_same_verdicts_however_it_is_run(green: Path, tmp_path: Path) -> None:
    ways = {
        "n0": ("-n", "0"),
        "shuffled": ("-n", "2", "--shuffle", "7"),
    }
    seen = {}
    for name, arguments in ways.items():
        done = runner(green, tmp_path / name, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        seen[name] = verdicts(tmp_path / name)
    # Named once, whether the package is installed (its entry point is called fp8_harness) or only on the path.
    plugin = ("-p", "no:fp8_harness", "-p", "harness.run.plugin")
    plain = command("-m", "pytest", *plugin, str(green), "-n", "2", "-q", cwd=tmp_path)
    assert plain.returncode == 0, plain.stdout + plain.stderr
    seen["pytest"] = verdicts(tmp_path / "reports" / "latest")
    assert len(seen["n0"]) == 6
    assert all(found == seen["n0"] for found in seen.values())


def test_crash_without_workers_gives_the_same_verdicts(mixed: Path, tmp_path: Path) -> None:
    done = runner(mixed, tmp_path / "out", "-n", "0", "--timeout", "20", "-k", "segfault or rowwise")
    assert done.returncode == 1, done.stdout + done.stderr
    assert sorted(str(verdict) for verdict in verdicts(tmp_path / "out").values()) == ["crash", "pass"]


def test_one_cell_by_its_id(green: Path, tmp_path: Path) -> None:
    cell = "toy_linear[provider=reference,recipe=nvfp4_block_scaling,backend=eager]"
    done = runner(green, tmp_path / "out", "--cell", cell, "-n", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert verdicts(tmp_path / "out") == {cell: "pass"}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--select", "nesting=flatt"), 4, "flat"),
        (("--cell", "toy_linear[provider=reference]"), 4, "nearest"),
        (("--select", "nesting=deep"), 5, ""),
        (("--provider", "referense"), 4, "reference"),
        (("--set", "arch=sm100"), 1, "traced"),
    ],
)
def test_bad_or_empty_selection(green: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, says: str) -> None:
    done = runner(green, tmp_path / "out", "-n", "1", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert says in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
