"""What the user sees while cells run: done and total, failures as they happen, time left."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from harness.report import estimate
from harness.report.groups import headline
from harness.report.marks import QUARANTINED, duration, mark_of
from harness.report.textfit import printable, shorten, wrap
from harness.types import CellResult

LINE_EVERY = 10.0  # seconds between plain progress lines; CI logs get six a minute
HEARTBEAT = 30.0  # seconds of silence after which a log may be taken for hung
BAR = 20


class Progress:
    """Live progress as a context manager: one moving line on a terminal, plain lines elsewhere.

    Plain output says something at least every ``heartbeat`` seconds while it is open, and names what has been running
    longest, so that a hang is seen from the log alone. ``verbosity``: -1 shows reds only, 0 also counts, 1 also a line
    for every cell. Methods may be called from any thread.
    """

    def __init__(
        self,
        console: Console,
        total: int,
        *,
        verbosity: int = 0,
        heartbeat: float = HEARTBEAT,
        clock: Callable[[], float] = time.monotonic,
        word_of: Callable[[CellResult], str] = lambda result: result.verdict.value,
    ) -> None:
        """``word_of``: what a result is called and counted as."""
        self._console = console
        self._total = total
        self._verbosity = verbosity
        self._heartbeat = heartbeat
        self._clock = clock
        self._word_of = word_of
        self._began = self._spoke = clock()
        self._words: Counter[str] = Counter()
        self._running: dict[str, tuple[str, float]] = {}  # id -> (worker, since)
        self._took: list[float] = []  # seconds of each cell that was seen to begin
        self._shown: set[str] = set()  # signatures whose finding the user has read
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        self._began = self._spoke = self._clock()
        if self._console.is_terminal and not self._console.is_dumb_terminal and self._verbosity >= 0:
            self._live = Live(
                console=self._console, get_renderable=self._moving_line, refresh_per_second=4, transient=True
            )
            self._live.start()
        else:
            self._thread = threading.Thread(target=self._beat, name="progress heartbeat", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        if self._live is not None:
            self._live.stop()
        if self._thread is not None:
            self._thread.join()

    @property
    def done(self) -> int:
        return self._words.total()

    def started(self, cell_id: str, worker: str = "") -> None:
        """A cell began; without this call heartbeats can't say what runs."""
        with self._lock:
            self._running[cell_id] = (worker, self._clock())

    def finished(self, result: CellResult) -> None:
        """A cell ended. Reds are shown at once, with their first finding."""
        with self._lock:
            began = self._running.pop(result.id, None)
            self._took += [self._clock() - began[1]] if began else []
            self._words[self._word_of(result)] += 1
            if result.verdict.is_red:
                self._show(result, headline(result))
            elif self._verbosity >= 1:
                self._show(result, "")
            elif self._live is None and self._verbosity == 0 and self._is_due():
                self._say(f"{self._count()} {self._counts()}; {self._left()}")

    def note(self, text: str) -> None:
        """Something else that the user should see now: a worker was replaced, a cell is retried."""
        with self._lock:
            self._say(text)

    def _is_due(self) -> bool:
        return self.done >= self._total or self._clock() - self._spoke >= min(LINE_EVERY, self._heartbeat)

    def _show(self, result: CellResult, why: str) -> None:
        mark = mark_of(result)
        label = self._word_of(result)
        if mark is QUARANTINED:
            label += " (quarantined)"
        for line in self._fit(f"{self._count()} {mark.letter} {label} {result.id}", rest="    "):
            self._print(Text(line, style=mark.style))
        if why and result.signature and result.signature in self._shown:
            why = f"the same again: {result.signature.partition(' | ')[0]}"
        self._shown.add(result.signature)
        for line in self._fit(why, first="    ") if why else ():
            self._print(Text(line))

    def _say(self, text: str) -> None:
        for line in self._fit(text, rest="    "):
            self._print(Text(line))

    def _fit(self, text: str, *, first: str = "", rest: str | None = None) -> list[str]:
        return wrap(printable(text, ascii_only=is_ascii(self._console)), self._console.width, first=first, rest=rest)

    def _print(self, line: Text) -> None:
        self._spoke = self._clock()
        self._console.print(line, soft_wrap=True)

    def _count(self) -> str:
        width = len(str(self._total))
        return f"[{self.done:>{width}}/{self._total}]"

    def _counts(self) -> str:
        return ", ".join(f"{count} {word}" for word, count in self._words.items()) or "none done"

    def _left(self) -> str:
        spent = self._clock() - self._began
        if self.done >= self._total:
            return f"took {duration(spent)}"
        if self.done < 2:
            return f"{duration(spent)} so far"
        left = self._total - self.done
        if not self._took:
            return f"about {duration(spent / self.done * left)} left"
        running = [self._clock() - since for _, since in self._running.values()]
        return f"about {duration(estimate.left(left, self._took, running, spent))} left"

    def _longest(self) -> str:
        """The cell that has been running longest, or nothing when nobody said what runs."""
        if not self._running:
            return ""
        cell_id, (worker, since) = min(self._running.items(), key=lambda item: item[1][1])
        place = f" on {worker}" if worker else ""
        return f"{cell_id}{place} for {duration(self._clock() - since)}"

    def _moving_line(self) -> Text:
        with self._lock:
            filled = BAR * self.done // max(self._total, 1)
            head = f"{self._count()} [{'#' * filled}{'.' * (BAR - filled)}] {self._left()}; {self._counts()}"
            longest = self._longest()
        ascii_only = is_ascii(self._console)
        width = self._console.width
        lines = [shorten(printable(line, ascii_only=ascii_only), width) for line in (head, longest) if line]
        return Text("\n".join(lines), no_wrap=True, overflow="crop")

    def _beat(self) -> None:
        while not self._closed.wait(min(self._heartbeat / 4, 1.0)):
            with self._lock:
                if self._clock() - self._spoke >= self._heartbeat * 0.9:
                    longest = self._longest()
                    running = f"; running {longest}" if longest else ""
                    self._say(f"{self._count()} {self._counts()}; {self._left()}{running}")


def is_ascii(console: Console) -> bool:
    """True when the console's stream can't encode more than ASCII (LANG=C, some CI logs)."""
    return not console.encoding.lower().startswith("utf")
