"""The pytest plugin: a matrix YAML that is named on the command line is a test file, and each of its cells an item.

Loaded into every pytest of the environment (entry point ``fp8_harness``), so it does and imports nothing unless a YAML
with ``schema_version`` is named.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.run import DEFAULT_TIMEOUT

if TYPE_CHECKING:
    from harness.types import Cell, CellResult

SUFFIXES = (".yaml", ".yml")
# What the pytest that commands xdist workers hands them.
ROUND_KEY = "fp8_harness_round"
MATRIX_KEY = "fp8_harness_matrix"
_MARK = re.compile(rb"^schema_version\s*:", re.MULTILINE)


def execute_cell(cell: Cell, *, timeout: float | None) -> CellResult:
    """Run and judge one cell; imports torch, so only processes that run cells call it."""
    from harness.run.execute import execute_cell as execute

    return execute(cell, timeout=timeout)


def describe_host() -> Mapping[str, Any]:
    """Versions and hardware of this process's machine; imports torch."""
    from harness.run.host import describe

    return describe()


def peak_gpu_mib() -> int:
    """The most memory that torch's allocator held on this process's GPU, in MiB; the context is not in it."""
    from harness.run.device import peak_mib

    return peak_mib()


def load_cases(names: Iterable[str]) -> None:
    """Import the case files of a plan before any cell runs, so that a broken one stops the run at once.

    Raises:
        LoadError: one can't be imported; the message has its file and line.
    """
    from cases import CASES
    from harness.registry import load

    for name in names:
        load(CASES[name].path)


def load_targets(named: Mapping[str, str], beside: Path) -> None:
    """Import the users' own programs that a plan names, from the working directory or from that of the matrix.

    Args:
        named: each target -> where its setting came from.

    Raises:
        LoadError: some can't be imported, or aren't there; a line for each, with its place in the matrix and the file
            and line of the user's code.
    """
    from harness.registry import LoadError
    from harness.targets import load_target, look_in

    look_in([Path.cwd(), beside])
    errors = []
    for name, origin in named.items():
        try:
            load_target(name)
        except LoadError as error:
            errors.append(f"{origin}: {error}" if origin else str(error))
    if errors:
        raise LoadError("\n".join(errors))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fp8 harness", "conformance matrix named on the command line")
    group.addoption(
        "--harness-timeout",
        type=float,
        default=DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help="Time limit of one cell; a cell that exceeds it gets the verdict timeout. (default: %(default)g)",
    )
    group.addoption(
        "--harness-report-dir",
        default=None,
        metavar="DIR",
        help="Where the reports go. (default: reports/<run-id>)",
    )
    group.addoption("--harness-round", default=None, help="Used by runner.py only: the cells of one round.")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # A worker is told, so that a matrix edited while it runs doesn't change what workers collect.
    told = getattr(config, "workerinput", {}).get(MATRIX_KEY)
    matrix = Path(told) if told is not None else named_matrix(config.args)
    if matrix is not None:
        from harness.run.pytest_roles import activate

        activate(config, matrix)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """``-n auto`` beside a matrix counts GPU memory, as runner.py does; without a GPU it stays xdist's."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ or named_matrix(config.args) is None:
        return None
    from harness.run.worker_count import place_workers, usable_cores

    placing = place_workers(None, usable_cores(), os.environ)
    return placing.workers if placing.gpus else None


def named_matrix(arguments: Iterable[str]) -> Path | None:
    """The matrix among pytest's arguments.

    Raises:
        pytest.UsageError: there are several; a run has one.
    """
    paths = dict.fromkeys(Path(str(argument).partition("::")[0]) for argument in arguments)
    found = [path for path in paths if path.suffix in SUFFIXES and is_matrix(path)]
    if len(found) > 1:
        raise pytest.UsageError(f"one matrix a run, not {len(found)}: {', '.join(map(str, found))}")
    return found[0] if found else None


def is_matrix(path: Path) -> bool:
    """True for a file whose top level has the key ``schema_version``."""
    try:
        return _MARK.search(path.read_bytes()) is not None
    except OSError:
        return False
