"""The nearest valid name to a wrong one, for every message that says "did you mean"."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that ``word`` was most likely meant to be, or None when nothing is near.

    Case and punctuation don't count (``DelayedScaling`` is ``delayed_scaling``), then spelling distance decides, then a
    fragment that stands in exactly one candidate (``mxfp8`` is ``mxfp8_block_scaling``).
    """
    by_letters = {_letters(candidate): candidate for candidate in candidates}
    letters = _letters(word)
    if letters in by_letters:
        return by_letters[letters]
    close = difflib.get_close_matches(letters, by_letters, n=1, cutoff=0.6)
    if close:
        return by_letters[close[0]]
    holding = [key for key in by_letters if len(letters) >= 3 and letters in key]
    return by_letters[holding[0]] if len(holding) == 1 else None


def unknown(what: str, word: str, names: Iterable[str]) -> tuple[str, str | None]:
    """The message for a name that isn't among ``names``, and the nearest that is; all of them where none is near."""
    names = tuple(names)
    near = nearest(word, names)
    known = f": one of {', '.join(names)}" if names and not near else ""
    return f"unknown {what} {quoted(word)}{known}", near


def quoted(text: str) -> str:
    """Text as it is quoted in a message: short, on one line."""
    shown = repr(str(text))
    return shown if len(shown) <= 60 else shown[:56] + "...'"


def nearest_ids(wrong: str, ids: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """The cell ids that share most settings with ``wrong``, best first.

    Settings are compared before spelling, because spelling distance over the ids of a large plan takes minutes.
    """
    parts = _settings(wrong)
    ranked = sorted(ids, key=lambda one: -len(parts & _settings(one)))[:50]
    return tuple(difflib.get_close_matches(wrong, ranked, n=count, cutoff=0.5))


def _letters(word: str) -> str:
    return re.sub(r"[\W_]", "", word).lower()


def _settings(cell_id: str) -> frozenset[str]:
    return frozenset(re.split(r"[\[\],]", cell_id))
