"""Runs of the real front and of plain pytest on a matrix of fake cells, and what they left."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.report import read_results
from harness.types import CellResult

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "runner.py"


def write_matrix(directory: Path, cells: int, text: str = "") -> Path:
    """A matrix of ``cells`` cells that differ in their seed."""
    path = directory / "m.yaml"
    path.write_text(
        "schema_version: 1\nname: m\ndefaults: {provider: reference, case: toy_linear}\n"
        f"matrix:\n  recipe: [float8_current_scaling]\n  seed: [{', '.join(map(str, range(cells)))}]\n{text}"
    )
    return path


def waiver(kind: str, seed: int) -> str:
    """An entry of ``waivers`` for one cell of :func:`write_matrix`."""
    return f"  - {{kind: {kind}, when: {{seed: {seed}}}, reason: known, owner: me, expires: 2999-01-01}}\n"


def cell_id(seed: int) -> str:
    tail = f",seed={seed}" if seed else ""
    return f"toy_linear[provider=reference,recipe=float8_current_scaling{tail}]"


def seed_of(name: str) -> int:
    found = re.search(r"seed=(\d+)", name)
    return int(found.group(1)) if found else 0


@dataclass(frozen=True)
class Ran:
    """A finished command. ``output`` is stdout and stderr."""

    code: int
    output: str
    directory: Path

    @property
    def report(self) -> Path:
        return (self.directory / "reports" / "latest").resolve()

    @property
    def run(self) -> Mapping[str, Any]:
        loaded: Mapping[str, Any] = json.loads((self.report / "run.json").read_text())
        return loaded

    @property
    def results(self) -> Mapping[int, CellResult]:
        """By seed."""
        return {seed_of(result.id): result for result in read_results(self.report)}

    @property
    def verdicts(self) -> Mapping[int, str]:
        return {seed: result.verdict.value for seed, result in self.results.items()}


def environment(directory: Path, faults: Mapping[int, str], env: Mapping[str, str]) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "FP8_HARNESS_"))}
    return {
        **clean,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "PYTEST_PLUGINS": "tests.support.fake_cells",
        "FAKE_CELLS": json.dumps(faults),
        "FAKE_ROOT": str(directory),
        "COLUMNS": "120",
        **env,
    }


def front_command(*options: str, matrix: str = "m.yaml") -> list[str]:
    return [sys.executable, str(RUNNER), "--matrix", matrix, *options]


def run(
    directory: Path,
    command: Sequence[str],
    faults: Mapping[int, str] | None = None,
    env: Mapping[str, str] | None = None,
) -> Ran:
    """Run ``command`` in ``directory`` with fake cells; ``faults`` maps a seed to what that cell does."""
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment(directory, faults or {}, env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return Ran(done.returncode, done.stdout, directory)


def front(directory: Path, *options: str, faults: Mapping[int, str] | None = None, **env: str) -> Ran:
    """``runner.py --matrix m.yaml OPTIONS``."""
    return run(directory, front_command(*options), faults, env)


def plain(directory: Path, *options: str, faults: Mapping[int, str] | None = None, **env: str) -> Ran:
    """``pytest m.yaml OPTIONS``, without runner.py."""
    command = [sys.executable, "-m", "pytest", "-p", "harness.run.plugin", "-p", "no:fp8_harness", "m.yaml", *options]
    return run(directory, command, faults, env)
