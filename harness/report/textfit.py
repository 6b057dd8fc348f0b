"""Text that fits: printable characters only, wrapped by terminal cells, shell commands that survive wrapping."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator, Sequence

from rich.cells import cell_len, chop_cells

# Control (an escape sequence in a message must not drive the user's terminal), format (bidirectional overrides, zero
# width), surrogate, unassigned and private characters; line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"})

JOINT = re.compile(r"(?<=[_(,=])")  # where a long name may be broken: float8_|current_|scaling(|power_|2_|scale=|true)


def printable(text: str, *, ascii_only: bool = False) -> str:
    """``text`` on one line: white space runs become one space, the rest as in :func:`visible`."""
    return visible(" ".join(text.split()), ascii_only=ascii_only)


def visible(text: str, *, ascii_only: bool = False) -> str:
    """``text`` with a Python escape for every character that can't be seen or would act on a terminal.

    ``ascii_only`` escapes everything else too, for a stream that can't encode it.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if _must_escape(c, ascii_only) else c for c in text)


def _must_escape(character: str, ascii_only: bool) -> bool:
    if character.isascii():
        return not character.isprintable()
    return ascii_only or unicodedata.category(character) in _HIDDEN


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def shorten(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells, its end replaced by ``...`` when it is longer."""
    if cell_len(text) <= width:
        return text
    if width <= 3:
        return "." * max(width, 0)
    return chop_cells(text, width - 3)[0] + "..."


def wrap(text: str, width: int, *, first: str = "", rest: str | None = None) -> list[str]:
    """Lines of at most ``width`` cells: ``first`` begins the first, ``rest`` (default: as wide a blank) the others.

    Breaks at spaces, and inside a word only when the word alone is too long.
    """
    if rest is None:
        rest = " " * cell_len(first) if cell_len(first) <= width else ""
    whole = first + " ".join(text.split())
    if cell_len(whole) <= width:
        return [whole]
    if cell_len(first) > width:
        return wrap(f"{first} {text}", width, first="", rest=rest)
    lines: list[str] = []
    line, prefix = first, first
    indent = max(cell_len(rest), 0 if first.strip() else cell_len(first))
    for piece in _pieces(text, max(width - indent, 2)):
        gap = "" if line == prefix else " "
        if line.strip() and cell_len(line) + cell_len(gap) + cell_len(piece) > width:
            lines.append(line.rstrip())
            line, prefix, gap = rest, rest, ""
        line += gap + piece
    return [*lines, line]


def _pieces(text: str, width: int) -> Iterator[str]:
    for word in text.split():
        while cell_len(word) > width:
            head = _head(word, width)
            yield head
            word = word[len(head) :]
        yield word


def _head(word: str, width: int) -> str:
    """The start of ``word`` that fits into ``width`` cells, cut at a joint of it where that wastes little.

    That is behind a comma or slash, else behind an underscore.
    """
    head = chop_cells(word, width)[0]
    ends = 1 + max(head.rfind(","), head.rfind("/")), 1 + head.rfind("_")
    return next((head[:end] for end in ends if end > len(head) // 2), head)


def shell_lines(words: Sequence[str], width: int) -> list[str]:
    """A command, quoted for a POSIX shell, on lines of at most ``width`` (>= 20) cells that can be pasted as they are.

    Lines end in a backslash where the command goes on. A word too long for a line is cut between two quoted parts,
    and its continuation starts in the first column: the shell joins both into one word again.
    """
    lines: list[str] = []
    line = ""
    for word in words:
        quoted = shlex.quote(word)
        if line and cell_len(line) + 1 + cell_len(quoted) <= width - 2:
            line += " " + quoted
            continue
        if line:
            lines.append(line + " \\")
        parts = _quoted_parts(word, width - 1)
        lines += [part + "\\" for part in parts[:-1]]
        line = parts[-1]
    return [*lines, line] if line else lines


def _quoted_parts(word: str, width: int) -> list[str]:
    """``word`` as quoted pieces of at most ``width`` cells each, which a shell joins when nothing stands between."""
    if cell_len(shlex.quote(word)) < width:
        return [shlex.quote(word)]
    parts: list[str] = []
    while cell_len(shlex.quote(word)) >= width:
        room = width - 3
        while cell_len(shlex.quote(head := _head(word, room))) >= width and len(head) > 1:
            room -= 1
        parts.append(shlex.quote(head))
        word = word[len(head) :]
    return [*parts, shlex.quote(word)] if word or not parts else parts
