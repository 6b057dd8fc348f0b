"""One stable text per cause: what a red says, without the parts that differ between cells, processes and machines.

Used where a result is made (its ``signature``) and where reports group reds. The parts of a signature are the check
(or the verdict, where no check spoke), the normalised reason and the site in the user's code.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence

from harness.types import RECIPES, Finding, Verdict

MAX_INPUT = 2000  # a reason is a line or two; what is longer is a dump, and its start says which
MAX_REASON = 300
GREEN = (Verdict.PASS, Verdict.SKIP)

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_OBJECT = re.compile(r"<([^<>]*?)(?: object)? at 0x[0-9a-fA-F]+>")
_TENSOR = re.compile(r"\btensor\([^()]*(?:\([^()]*\)[^()]*)*\)")
_PATH = re.compile(r"(?<![\w.])(?P<path>/[\w.@+-]+(?:/[\w.@+<>-]+)+)(?:(?::|\", line )(?P<line>\d+)(?::\d+)?)?")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b")
_COMPILED_NAME = re.compile(r"\b__compiled_fn_\w+")
_HASH = re.compile(r"(?<![\w.])(?=[0-9a-f-]*\d)[0-9a-f]{8,}(?:-[0-9a-f]{4,})*(?!\w)")
_RECIPE = re.compile(rf"['\"]?\b(?:{'|'.join(RECIPES)})\b(?:\([^()]*\))?['\"]?")
_RECIPE_LIST = re.compile(r"[\[(]\s*<recipe>(?:\s*,\s*<recipe>)*\s*,?\s*[\])]")
# Names that count up: FX nodes (primals_3, arg0_1), inductor buffers (buf12), symbolic sizes (s0, u1), workers (gw2).
# Architectures (sm_90) don't.
_COUNTED_NAME = re.compile(r"(?<!\w)(?!sm_)([A-Za-z_]\w*?)_\d+(?:_\d+)*(?!\w)")
_SHORT_NAME = re.compile(r"(?<!\w)(buf|arg|input|output|gw|s|u|cuda:)\d+(?!\w)")
# A number of its own: digits inside a word (e4m3, sm90, bf16, 1x128) name a thing and stay.
_NUMBER = re.compile(
    r"(?<!\w)[-+]?\d+(?:\.\d+)*\.?(?:[eE][-+]?\d+)?(?P<unit>s|ms|us|x|[kKMGT]i?B|B)?(?!\w)",
)
_INSTALLED = re.compile(r"^.*/(?:site-packages|dist-packages)/")
_STANDARD_LIBRARY = re.compile(r"^.*/lib/python3\.\d+/")


def signature_of(verdict: Verdict, findings: Sequence[Finding], reason: str, *, project: str | None = None) -> str:
    """The signature of one result, ``check | normalised reason | site``; empty for a pass or a skip.

    The first finding speaks: checks run in the order of blame. ``project`` is the directory whose paths are the user's
    own (default: the current one); they stay, relative to it, with their line.
    """
    if verdict in GREEN:
        return ""
    if not findings:
        return _joined(verdict.value, normalise(reason, project=project), "")
    first = findings[0]
    text = f"expected {first.expected}, got {first.got}"
    if first.where:
        text = f"{first.where}: {text}"
    check = first.check if verdict in (Verdict.FAIL, Verdict.XFAIL, Verdict.XPASS) else f"{verdict.value} {first.check}"
    return _joined(check, normalise(text, project=project), normalise_site(first.site, project=project))


def _joined(*parts: str) -> str:
    return " | ".join(part for part in parts if part)


def normalise(text: str, *, project: str | None = None) -> str:
    """``text`` without what varies between occurrences of one cause.

    Addresses, object identities, tensors' contents, hashes, numbers, counted names, recipe names (a fault that all
    recipes show is one cause; the predicate of its group names the recipes) and paths outside ``project`` go; numbers
    inside words (``e4m3``, ``sm90``, ``1x128``) stay.
    """
    root = os.getcwd() if project is None else project
    text = _CONTROL.sub(" ", text[:MAX_INPUT])
    text = _OBJECT.sub(r"<\1>", text)
    text = _TENSOR.sub("tensor(...)", text)
    kept: list[str] = []
    text = _PATH.sub(lambda match: _keep(_path_text(match, root), kept), text)
    text = _COMPILED_NAME.sub("__compiled_fn", text)
    text = _ADDRESS.sub("ADDR", text)
    text = _HASH.sub("HASH", text)
    text = _RECIPE.sub("<recipe>", text)
    text = _RECIPE_LIST.sub("[<recipe>...]", text)
    text = _COUNTED_NAME.sub(r"\1_N", text)
    text = _SHORT_NAME.sub(r"\1N", text)
    text = _NUMBER.sub(lambda match: "N" + (match["unit"] or ""), text)
    for index, path in enumerate(kept):
        text = text.replace(_slot(index), path)
    return _shortened(" ".join(text.split()))


def _shortened(text: str) -> str:
    if len(text) <= MAX_REASON:
        return text
    # Texts that differ only behind the cut stay different.
    return f"{text[: MAX_REASON - 9]}~{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def normalise_site(site: str, *, project: str | None = None) -> str:
    """``file:line`` of the user's code: relative to the project, or without the machine's part of the path."""
    match = _PATH.fullmatch(site)
    if match is None:
        return " ".join(_CONTROL.sub(" ", site).split())
    return _path_text(match, os.getcwd() if project is None else project)


def _slot(index: int) -> str:
    # Private-use characters: no rule above touches them and no message holds them by accident.
    return f"\ue000{chr(0xE100 + index)}\ue001"


def _keep(path: str, kept: list[str]) -> str:
    if path not in kept:
        kept.append(path)
    return _slot(kept.index(path))


def _path_text(match: re.Match[str], root: str) -> str:
    path, line = match["path"], match["line"]
    if path.startswith(root.rstrip("/") + "/") and not _INSTALLED.match(path):
        return os.path.relpath(path, root) + (f":{line}" if line else "")
    for installed in (_INSTALLED, _STANDARD_LIBRARY):
        if installed.match(path):
            return installed.sub("", path)
    if path.startswith(tempfile.gettempdir().rstrip("/") + "/") or "torchinductor" in path:
        return "<generated file>"
    return os.path.basename(path)
