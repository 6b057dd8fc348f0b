"""Lines for a terminal of a given width: nothing gets onto a page that is wider, unprintable or unencodable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.text import Text

from harness.report.textfit import printable, shell_lines, shorten, visible, wrap

MIN_WIDTH = 20


class Page:
    """Collects lines. ``width`` counts terminal cells; ``ascii_only`` is for streams that can't encode more."""

    def __init__(self, width: int, *, ascii_only: bool = False) -> None:
        self.width = max(width, MIN_WIDTH)
        self.ascii_only = ascii_only
        self.lines: list[Text] = []

    def clean(self, text: str) -> str:
        return printable(text, ascii_only=self.ascii_only)

    def blank(self) -> None:
        self.lines.append(Text())

    def say(self, text: str, *, first: str = "", rest: str | None = None, style: str = "") -> None:
        """A paragraph, wrapped; ``first`` and ``rest`` begin its first and its other lines."""
        for line in wrap(self.clean(text), self.width, first=first, rest=rest):
            self.lines.append(Text(line, style=style))

    def spans(self, spans: Sequence[tuple[str, str]]) -> None:
        """One line of (text, style) pieces; what goes beyond the width is cut."""
        line = Text()
        for text, style in spans:
            line.append(text, style)
        if cell_len(line.plain) > self.width:
            line = Text(shorten(line.plain, self.width))
        line.rstrip()
        self.lines.append(line)

    def flow(self, items: Iterable[str], *, first: str = "", rest: str = "", gap: str = "  ") -> None:
        """Items side by side, broken between items where one line doesn't hold them all."""
        line = first
        tail = gap.rstrip()
        room = self.width - cell_len(tail)
        for item in map(self.clean, items):
            empty = line in (first, rest)
            if not empty and cell_len(line + gap + item) > room:
                self.lines.append(Text(line + tail))
                line, empty = rest, True
            if empty:
                *whole, line = wrap(item, room, first=line, rest=rest)
                self.lines += map(Text, whole)
            else:
                line += gap + item
        self.lines.append(Text(line))

    def command(self, words: Sequence[str]) -> None:
        """A shell command, from the first column on, that can be pasted as it stands."""
        for line in shell_lines([visible(word, ascii_only=self.ascii_only) for word in words], self.width):
            self.lines.append(Text(line, style="bold"))
