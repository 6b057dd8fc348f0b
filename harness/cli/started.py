"""How the front is started from a shell like the one it was started from."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import harness

RUNNER = Path(harness.__file__).resolve().parents[1] / "runner.py"


def front_words() -> tuple[str, str]:
    """The interpreter and ``runner.py`` as the working directory and PATH reach them now."""
    return _interpreter(sys.executable), _from_here(RUNNER)


def _interpreter(executable: str) -> str:
    """By its bare name where the shell finds this very one so. Links stay: one is what makes an environment."""
    names = ("python", "python3")
    found = next((name for name in names if os.path.abspath(shutil.which(name) or "") == executable), "")
    return found or _from_here(Path(executable))


def _from_here(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
