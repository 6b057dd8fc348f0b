"""Options of the commands that measure faults: what can't be meant is a usage message, never a traceback."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import NoReturn

from harness.exit_codes import USAGE
from harness.faults import FAULTS
from harness.plan.nearest import nearest

LARGEST_SEED = 2**31 - 1
_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)


class Parser(argparse.ArgumentParser):
    """argparse with this project's exit code, and no abbreviations: a command is shown again, option by option."""

    def __init__(self, module: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=f"python -m {module}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            epilog=epilog,
        )

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.format_usage()}{self.prog}: {message}\n")


def positive(text: str) -> int:
    """A whole number from 1."""
    if not _WHOLE.fullmatch(text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


def seed(text: str) -> int:
    """A whole number that can be a cell's seed."""
    if not _WHOLE.fullmatch(text) or int(text) > LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to {LARGEST_SEED}, got {text!r}")
    return int(text)


def seeds(text: str) -> tuple[int, ...]:
    """``0,1,2`` as numbers, each once."""
    return tuple(dict.fromkeys(seed(part) for part in text.split(",")))


def seconds(text: str) -> float:
    """A number of seconds above 0, and below eleven days."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:  # neither is NaN
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, got {text!r}")
    return value


def shapes(text: str) -> tuple[str, ...]:
    """``128x256x128,...`` as a matrix writes shapes, each once."""
    parts = text.split(",")
    for part in parts:
        if len(part.split("x")) != 3 or not all(_WHOLE.fullmatch(one) and int(one) for one in part.split("x")):
            raise argparse.ArgumentTypeError(f"expected MxKxN with whole numbers from 1, got {part!r}")
    return tuple(dict.fromkeys("x".join(str(int(one)) for one in part.split("x")) for part in parts))


def faults(text: str) -> tuple[str, ...]:
    """Names of registered faults, each once."""
    names = tuple(dict.fromkeys(text.split(",")))
    wrong = {name: nearest(name, FAULTS) for name in names if name not in FAULTS}
    if wrong:
        hints = (
            f"unknown fault {name!r}" + (f" (did you mean {near}?)" if near else "") for name, near in wrong.items()
        )
        raise argparse.ArgumentTypeError("; ".join(hints))
    return names


def file(text: str) -> Path:
    """A path that can be a file's."""
    path = Path(text)
    if not text.strip() or "\0" in text:
        raise argparse.ArgumentTypeError(f"expected a file, got {text!r}")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a directory, a file is needed")
    return path


def there(text: str) -> Path:
    """A file that exists."""
    if not file(text).is_file():
        raise argparse.ArgumentTypeError(f"no such file: {text}")
    return Path(text)


def directory(text: str) -> Path:
    """A path that can be a directory's."""
    if not text.strip() or "\0" in text or (Path(text).exists() and not Path(text).is_dir()):
        raise argparse.ArgumentTypeError(f"expected a directory, got {text!r}")
    return Path(text)
