"""What torch.compile says of itself on the logger ``torch.__trace``: breaks, compilations, recompile reasons.

The logger is the channel behind TORCH_TRACE. Attaching a handler switches the events on; no environment variable, no
text of TORCH_LOGS and no second compilation (as ``explain`` makes) is needed.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from harness.observe.sites import frames_in_text, innermost, site, without_noise
from harness.observe.types import Break

TRACE_LOGGER = "torch.__trace"
_AOT_FORWARDS = frozenset({"aot_forward_graph", "aot_inference_graph"})
_NOTHING_KEPT = "no failed guard: nothing of the earlier attempt was kept"

_FIRST_LINE = re.compile(r"^Graph break in user code at (?P<file>.+):(?P<line>\d+)\s*$", re.MULTILINE)
_REASON = re.compile(
    r"^Graph Break Reason: (?P<text>.*?)(?=^(?:Stack variable source|User code traceback))", re.MULTILINE | re.DOTALL
)
_PREAMBLE = re.compile(r"^(?:Encountered graph break when|Failed to handle graph break gracefully)[^\n]*\n+")
_SECOND = "*** While handling this graph break, another graph break occurred: ***"
_CUT = re.compile(r"\n\s*(?:Hint:|Developer debug context:|The branch condition|For more details about)", re.M)


@dataclass
class Events:
    """Raw events of one observed stretch, in the order of their arrival."""

    breaks: list[str] = field(default_factory=list)  # Dynamo's reports
    starts: list[tuple[int, int]] = field(default_factory=list)  # (frame id, how often compiled before)
    reasons: dict[tuple[int, int], object] = field(default_factory=dict)  # of recompilations, keyed like starts
    forward_compiles: int = 0  # finished or abandoned, the recompile limit included
    backward_compiles: int = 0
    backward_graphs: int = 0
    forward_graphs: list[str] = field(default_factory=list)  # what AOT made of each forward, as source text

    @property
    def compilations(self) -> int:
        """Attempts to compile a frame or a backward graph, whatever became of them."""
        return max(len(self.starts), self.forward_compiles) + self.backward_compiles

    def break_sites(self) -> tuple[Break, ...]:
        """One entry for each site and kind of break; of several wordings the longest stays (it tells most)."""
        found: dict[tuple[str, str], list[str]] = {}
        for report in self.breaks:
            reason = break_reason(report)
            found.setdefault((break_site(report), reason.partition(":")[0]), []).append(reason)
        return tuple(Break(max(texts, key=len), where, len(texts)) for (where, _), texts in found.items())

    def recompiles(self) -> tuple[str, ...]:
        """The failed guard of each compilation of a frame that had been compiled before."""
        again = [key for key in self.starts if key[1] > 0]
        return tuple(recompile_reason(self.reasons[key]) if key in self.reasons else _NOTHING_KEPT for key in again)


class TraceLog(logging.Handler):
    """Collects :class:`Events` while entered. Leaves handlers, level and propagation of the logger as they were."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.events = Events()
        self._logger = logging.getLogger(TRACE_LOGGER)
        self._before: tuple[int, bool] | None = None

    def __enter__(self) -> TraceLog:
        self._before = (self._logger.level, self._logger.propagate)
        self._logger.setLevel(logging.DEBUG)
        self._logger.propagate = False  # the payloads are huge and meant for no console
        self._logger.addHandler(self)
        return self

    def __exit__(self, *exc: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._logger.removeHandler(self)
        if self._before is not None:
            level, self._logger.propagate = self._before
            self._logger.setLevel(level)
            self._before = None

    def emit(self, record: logging.LogRecord) -> None:
        """Sort one event in. Runs inside the compiler: texts are kept as they are and read later."""
        metadata: dict[str, Any] = getattr(record, "metadata", {})
        key = (int(metadata.get("frame_id") or 0), int(metadata.get("frame_compile_id") or 0))
        if "artifact" in metadata:
            self._artifact(str(metadata["artifact"].get("name")), key, getattr(record, "payload", None))
        elif "dynamo_start" in metadata:
            self.events.starts.append(key)
        elif "compilation_metrics" in metadata:
            self.events.forward_compiles += 1
        elif "bwd_compilation_metrics" in metadata:
            self.events.backward_compiles += 1
        elif "aot_backward_graph" in metadata:
            self.events.backward_graphs += 1
        elif not _AOT_FORWARDS.isdisjoint(metadata):  # from the cache of AOT graphs too
            self.events.forward_graphs.append(str(getattr(record, "payload", "")))

    def _artifact(self, name: str, key: tuple[int, int], payload: object) -> None:
        if name == "dynamo_graph_break_reason":
            self.events.breaks.append(str(payload))
        elif name == "recompile_reasons":
            self.events.reasons[key] = payload


def break_site(text: str) -> str:
    """``file:line`` of a graph-break report: its first line where that is the user's, else the innermost user frame."""
    first = _FIRST_LINE.search(text)
    user_part = text.partition("\nTraceback (most recent call last)")[0]
    named = [(first["file"], int(first["line"]))] if first else []
    traced = frames_in_text(user_part.partition("User code traceback:")[2] or user_part)
    return innermost(named, traced) or (site(*named[0]) if named else "")


def break_reason(text: str) -> str:
    """The reason on one line, without what differs between runs: addresses, paths, hints, links.

    A break that Dynamo met while handling another one is appended: it says why the frame was given up.
    """
    found = _REASON.search(text)
    body = found["text"] if found else text
    parts = [_headline(part) for part in _PREAMBLE.sub("", body.strip()).split(_SECOND)]
    return "; then ".join(part for part in parts if part)


def unsupported_reason(message: str) -> str:
    """A key of ``counters["unimplemented"]`` on one line, in the same form as :func:`break_reason`."""
    return "; then ".join(_headline(part) for part in message.split(_SECOND))


def recompile_reason(payload: object) -> str:
    """The failed guard: first line of the first reason, source comment and addresses taken off."""
    text = str(payload or "")
    if text.lstrip().startswith("["):
        try:
            reasons = json.loads(text)
        except ValueError:
            reasons = [text]
        text = str(reasons[0]) if reasons else ""
    line = text.strip().splitlines()[0] if text.strip() else "no reason given"
    return without_noise(re.sub(r"\s{2,}#.*$", "", line)).strip()


def _headline(part: str) -> str:
    """Name of a break and its explanation, in one line."""
    kept = _CUT.split(part.strip(), maxsplit=1)[0]
    name, _, rest = kept.partition("\n")
    explanation = " ".join(rest.replace("Explanation:", "", 1).split())
    return without_noise(f"{name.strip()}: {explanation}" if explanation else name.strip())
