"""The options of a run, each declared once."""

from __future__ import annotations

import math

from harness.cli.option import Option
from harness.plan import split_values
from harness.run import DEFAULT_TIMEOUT


def read_workers(text: str) -> int | str:
    if text == "auto":
        return text
    try:
        count = int(text)
    except ValueError:
        count = -1
    if count < 0:
        raise ValueError("expected auto or a number of worker processes, 0 for none")
    return count


def read_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < 1e6:
        raise ValueError("expected a number of seconds above 0")
    return seconds


def read_positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ValueError("expected a number from 1")
    return int(text)


def read_seed(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("expected a whole number") from None


def read_shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise ValueError("expected I/N with 1 <= I <= N")
    return int(index), int(count)


def read_axis(text: str) -> tuple[str, tuple[str, ...]]:
    axis, equals, values = text.partition("=")
    if not equals or not axis or not values:
        raise ValueError("expected AXIS=VALUE or AXIS=VALUE,VALUE")
    return axis, tuple(split_values(values))


def read_directory(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise ValueError("expected a directory")
    return text


def read_color(text: str) -> str:
    if text not in ("auto", "always", "never"):
        raise ValueError("expected auto, always or never")
    return text


MATRIX = "the matrix"
CHOICE = "which cells"
HOW = "how they are run"
SHOW = "what is shown"

RUN_OPTIONS = (
    Option(
        "matrix",
        ("--matrix",),
        "matrix file, looked up as given, then in configs/",
        metavar="FILE",
        once=True,
        group=MATRIX,
    ),
    Option(
        "overrides",
        ("--set",),
        "give an axis these values instead of the matrix's own; repeatable",
        read_axis,
        metavar="AXIS=V,V",
        repeat=True,
        group=MATRIX,
    ),
    Option(
        "plan", ("--plan",), "show the cells and where each setting came from; run nothing", switch=True, group=MATRIX
    ),
    Option(
        "baseline",
        ("--baseline",),
        "red as well: whatever is worse than in this file, which --update-baseline wrote",
        metavar="FILE",
        once=True,
        group=MATRIX,
    ),
    Option(
        "update_baseline",
        ("--update-baseline",),
        "write what this run measured into --baseline FILE (default: baselines/NAME.ARCH.json beside the matrix)",
        switch=True,
        group=MATRIX,
    ),
    Option("cells", ("--cell",), "run this cell; exact id; repeatable", metavar="ID", repeat=True, group=CHOICE),
    Option(
        "select",
        ("--select",),
        "cells whose axis has one of these values; exact; repeatable",
        read_axis,
        metavar="AXIS=V,V",
        repeat=True,
        group=CHOICE,
    ),
    Option("keyword", ("-k",), "cells whose id matches this expression of substrings", metavar="EXPR", group=CHOICE),
    Option(
        "providers",
        ("--provider",),
        "cells of this provider; repeatable",
        metavar="NAME",
        repeat=True,
        group=CHOICE,
    ),
    Option("shard", ("--shard",), "the I-th of N equal parts", read_shard, metavar="I/N", group=CHOICE),
    Option(
        "last_failed",
        ("--last-failed", "--lf"),
        "cells of this matrix that were red when they last ran",
        switch=True,
        group=CHOICE,
    ),
    Option(
        "workers",
        ("-n", "--workers"),
        "worker processes; auto: as many as cores, GPU memory and cells allow; 0: none, for a debugger",
        read_workers,
        "auto",
        metavar="N",
        env="FP8_HARNESS_WORKERS",
        group=HOW,
    ),
    Option(
        "timeout",
        ("--timeout",),
        "time limit of one cell",
        read_seconds,
        DEFAULT_TIMEOUT,
        metavar="SECONDS",
        env="FP8_HARNESS_TIMEOUT",
        group=HOW,
    ),
    Option("exitfirst", ("-x", "--exitfirst"), "stop after the first red cell", switch=True, group=HOW),
    Option("maxfail", ("--maxfail",), "stop after N red cells", read_positive, metavar="N", group=HOW),
    Option("isolate", ("--isolate",), "a fresh process for every cell", switch=True, group=HOW),
    Option("shuffle", ("--shuffle",), "run in a random order", read_seed, metavar="SEED", group=HOW),
    Option(
        "report_dir",
        ("--report-dir",),
        "where the reports go (default: reports/<run-id>)",
        read_directory,
        metavar="DIR",
        env="FP8_HARNESS_REPORT_DIR",
        group=HOW,
    ),
    Option(
        "allow_env",
        ("--allow-env",),
        "run although this environment variable shifts counts; repeatable",
        metavar="NAME",
        repeat=True,
        group=HOW,
    ),
    Option("quiet", ("-q", "--quiet"), "reds and the result only", switch=True, group=SHOW),
    Option("verbose", ("-v", "--verbose"), "a line for every cell, the slowest cells", switch=True, group=SHOW),
    Option(
        "color",
        ("--color",),
        "auto, always or never; NO_COLOR is honoured",
        read_color,
        "auto",
        metavar="WHEN",
        group=SHOW,
    ),
)
