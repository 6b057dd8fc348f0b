"""Reds grouped by signature, each group with what a maintainer needs first."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.report.predicate import Predicate, Separator
from harness.signature import signature_of
from harness.types import CellResult, Verdict

_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
# Frames of these are never where the user has to look first.
_NOT_THE_USERS = re.compile(r"/(?:site-packages|dist-packages)/|/lib/python3\.\d+/|(?:^|/)harness/|^<")


@dataclass(frozen=True)
class Group:
    """Reds of one signature, in plan order. ``predicate`` is None when no single one separates them from the greens."""

    signature: str
    members: tuple[CellResult, ...]
    predicate: Predicate | None

    @property
    def representative(self) -> CellResult:
        """The first member that knows a place in the user's code, else the first."""
        return next((member for member in self.members if user_site(member)), self.members[0])

    @property
    def gates(self) -> bool:
        return any(member.gates for member in self.members)

    @property
    def verdicts(self) -> Mapping[str, int]:
        return Counter(member.verdict.value for member in self.members)

    @property
    def check(self) -> str:
        """The check that spoke first, or the verdict where none did."""
        first = self.representative
        return first.findings[0].check if first.findings else first.verdict.value

    @property
    def predicate_text(self) -> str:
        return str(self.predicate) if self.predicate else "no single predicate of up to 3 terms separates these cells"

    def facts(self) -> list[tuple[str, str]]:
        """(name, text) of what to tell about the group, from its representative; nothing empty."""
        first = self.representative
        finding = first.findings[0] if first.findings else None
        facts = [
            ("expected", finding.expected if finding else ""),
            ("got", finding.got if finding else first.reason or "no reason was recorded"),
            ("in", finding.where if finding else ""),
            ("site", user_site(first)),
            ("on", place(first)),
            ("cells", self.predicate_text),
        ]
        return [(name, text) for name, text in facts if text]


def group_reds(results: Sequence[CellResult]) -> list[Group]:
    """Red cells by signature: groups that gate first, then the largest, then plan order.

    A group's predicate is true on all its cells and false on every cell that passed.
    """
    members: dict[str, list[CellResult]] = {}
    for result in results:
        if result.verdict.is_red:
            members.setdefault(result.signature or _own_signature(result), []).append(result)
    greens = [axes_of(result) for result in results if result.verdict is Verdict.PASS]
    separator = Separator(greens, known=map(axes_of, results), scopes={"variant": "case"})
    groups = [
        Group(signature, tuple(cells), separator.smallest([axes_of(cell) for cell in cells]))
        for signature, cells in members.items()
    ]
    return sorted(groups, key=lambda group: (not group.gates, -len(group.members)))


def _own_signature(result: CellResult) -> str:
    return signature_of(result.verdict, result.findings, result.reason)


def axes_of(result: CellResult) -> Mapping[str, Any]:
    """The axes by which reds and greens are told apart; a case without variants has no axis of that name."""
    return {axis: value for axis, value in result.axes.items() if value != ""}


def user_site(result: CellResult) -> str:
    """``file:line`` of the user's code: from the findings, else the innermost frame of the stack that is theirs."""
    for finding in result.findings:
        if finding.site:
            return _short_site(finding.site)
    frames = [match for match in _FRAME.finditer(result.detail) if not _NOT_THE_USERS.search(match["file"])]
    return _short_site(f"{frames[-1]['file']}:{frames[-1]['line']}") if frames else ""


def _short_site(site: str) -> str:
    """Relative to the current directory where it lies inside, so that an editor can open it from there."""
    return site.removeprefix(os.getcwd() + "/")


def place(result: CellResult) -> str:
    """``GPU 0 (NVIDIA H200), worker gw1``; empty without a GPU."""
    if not result.gpu:
        return ""
    name = f" ({result.gpu['name']})" if result.gpu.get("name") else ""
    return f"GPU {result.gpu.get('index')}{name}, worker {result.worker}"


def headline(result: CellResult) -> str:
    """Why a cell is red, in one line: its first finding, else its reason."""
    text = str(result.findings[0]) if result.findings else result.reason or "no reason was recorded"
    return " ".join(text.split())
