"""``python -m harness.report DIRECTORY``: make the reports of a stored run again and print its summary."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness import exit_codes
from harness.report import StoreError, print_summary, rerender
from harness.report.console import QuietWhenClosed

USAGE_ERROR = exit_codes.USAGE


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when the reports were written (whatever the run's own was), 4 when the stored run can't be read."""
    parser = argparse.ArgumentParser(prog="python -m harness.report", description=__doc__)
    parser.add_argument("directory", type=Path, help="a report directory with results.jsonl and run.json")
    parser.add_argument("-v", "--verbose", action="store_true", help="slowest cells, and every group of reds")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:  # argparse says 2, which is "interrupted" here
        return USAGE_ERROR if stop.code else 0
    try:
        run, results = rerender(options.directory)
    except (StoreError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE_ERROR
    print_summary(QuietWhenClosed(), run, results, verbosity=int(options.verbose), directory=options.directory)
    return 0


if __name__ == "__main__":
    sys.exit(exit_codes.guarded(main))
