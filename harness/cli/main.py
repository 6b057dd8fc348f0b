"""``runner.py``: which command, and what becomes of its errors."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence

from harness import exit_codes
from harness.cli.errors import NOTHING_RAN, USAGE_ERROR, NothingToRun, UsageError
from harness.plan.nearest import nearest

# Command -> the function that runs it, imported when it is asked for. Without a command word, a matrix is run.
COMMANDS: Mapping[str, str] = {
    "doctor": "harness.cli.doctor:main",
    "report": "harness.cli.report:main",
    "schema": "harness.cli.schema:main",
    "selftest": "harness.cli.selftest:main",
}
RUN = "harness.cli.run:main"
INTERRUPTED = exit_codes.INTERRUPTED
INTERNAL_ERROR = exit_codes.INTERNAL


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code, whatever happens in it."""
    try:
        refuse_optimized(sys.flags.optimize)
        return _command(arguments)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE_ERROR
    except NothingToRun as error:
        print(f"nothing to run: {error}", file=sys.stderr)
        return NOTHING_RAN
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output is gone (runner.py ... | head): nothing more can be said there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return INTERRUPTED
    except ModuleNotFoundError:
        raise  # runner.py knows what to say of a missing dependency
    except Exception:  # a defect of the harness: the traceback is what its authors need
        traceback.print_exc()
        print("error: this is a defect of the harness: please report it with the text above", file=sys.stderr)
        return INTERNAL_ERROR


def refuse_optimized(level: int) -> None:
    """Raises UsageError under ``python -O``, which strips the assert statements of every library under test."""
    if level:
        raise UsageError("python -O strips the assert statements of the libraries under test: run without it")


def _command(arguments: Sequence[str]) -> int:
    word, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if not word or word.startswith("-"):
        return _load(RUN)(arguments)
    if word not in COMMANDS:
        near = nearest(word, COMMANDS)
        hint = f" (did you mean {near}?)" if near else f"; commands: {', '.join(COMMANDS)}"
        if word.endswith((".yaml", ".yml")):
            hint = f" (did you mean --matrix {word}?)"
        raise UsageError(f"unknown command {word!r}{hint}")
    return _load(COMMANDS[word])(rest)


def _load(path: str) -> Callable[[Sequence[str]], int]:
    module, _, name = path.partition(":")
    function: Callable[[Sequence[str]], int] = getattr(importlib.import_module(module), name)
    return function
