"""Small matrices for the tests of the plan, and their mistakes as text."""

from __future__ import annotations

from pathlib import Path

from harness.plan import MatrixErrors
from harness.plan.load import matrix_from_bytes

HEAD = "schema_version: 1\n"
GOOD = HEAD + "matrix: {recipe: [mxfp8_block_scaling], nesting: [flat, nested]}\n"
WAIVER = (
    "- {kind: xfail, when: {nesting: flat}, reason: known, url: https://example.org/1, owner: me,"
    " expires: 2030-01-01}\n"
)


def errors_of(text: str | bytes, path: Path = Path("m.yaml")) -> list[str]:
    """Messages without the file's name: ``line:column: text``; empty for a matrix without mistakes."""
    raw = text if isinstance(text, bytes) else text.encode()
    try:
        matrix_from_bytes(raw, path)
    except MatrixErrors as errors:
        return [str(error).removeprefix(f"{error.file}:") for error in errors.errors]
    return []


def axis(values: str) -> str:
    """A matrix whose line 2 gives axes at column 10, with a recipe after them."""
    return HEAD + f"matrix: {{{values}, recipe: [mxfp8_block_scaling]}}\n"


def recipe(value: str) -> str:
    return HEAD + f"matrix: {{recipe: [{value}]}}\n"
