"""Wall time and peak memory of ci.yaml against a plain pytest file with the same cells, alternately, on this machine.

    python benchmarks/measure.py --repeats 3 --workers 2

Prints one line a run and the ratio of the medians. Run it on an idle machine; compare the ratio, not the seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
POLL_S = 0.2


@dataclass(frozen=True)
class Run:
    """One run: wall seconds, the largest resident size of any of its processes in MiB, its exit code."""

    seconds: float
    peak_mib: float
    code: int


def descendants(root: int) -> list[int]:
    """Process ids below ``root``, itself included (Linux: from /proc)."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def resident_mib(pid: int) -> float:
    """Resident set of one process, 0 when it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure(command: list[str]) -> Run:
    """Run ``command`` from the repository's root, output discarded."""
    started, peak, ended = time.perf_counter(), [0.0], threading.Event()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def watch() -> None:
        while not ended.wait(POLL_S):
            peak[0] = max(peak[0], *(resident_mib(pid) for pid in descendants(process.pid)))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    code = process.wait()
    seconds = time.perf_counter() - started
    ended.set()
    watcher.join()
    return Run(seconds, peak[0], code)


def main() -> int:
    """Measure, print, and return 1 when some run was not green: a failing run's time means nothing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--matrix", default="ci.yaml")
    options = parser.parse_args()
    workers, scratch = str(options.workers), tempfile.mkdtemp()
    report = str(Path(scratch) / "report")
    plain = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "benchmarks/plain_pytest", "-n", workers]
    harness = [sys.executable, "runner.py", "--matrix", options.matrix, "-n", workers, "--report-dir", report]
    runs: dict[str, list[Run]] = {"plain pytest": [], "harness": []}
    for _ in range(options.repeats):
        for name, command in (("plain pytest", plain), ("harness", harness)):
            shutil.rmtree(report, ignore_errors=True)
            run = measure(command)
            runs[name].append(run)
            print(f"{name:12} {run.seconds:6.1f} s  peak {run.peak_mib:6.0f} MiB  exit {run.code}", flush=True)
    shutil.rmtree(scratch, ignore_errors=True)
    medians = {name: statistics.median(run.seconds for run in found) for name, found in runs.items()}
    ratio = medians["harness"] / medians["plain pytest"]
    print(f"medians: harness {medians['harness']:.1f} s, plain {medians['plain pytest']:.1f} s, ratio {ratio:.2f}")
    return int(any(run.code for found in runs.values() for run in found))


if __name__ == "__main__":
    sys.exit(main())
