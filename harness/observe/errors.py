"""An exception of the product as data: its whole chain, the user's line, a stack that reads the same everywhere.

What torch.compile raises often hides the product's own error: under ``fullgraph=True`` a refusal surfaces as
``Unsupported: Observed exception`` and its text stands only in the chain.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator

from harness.observe.sites import frames_of, innermost, is_user_file, short_path, without_noise
from harness.observe.types import ErrorSeen

MAX_TEXT = 4000  # characters of one message, and of the stack
_ADVICE = "\n\nSet TORCHDYNAMO_VERBOSE=1 for the internal stack trace"


def describe_error(error: BaseException, phase: str) -> ErrorSeen:
    """``error`` with everything that it wraps, from the raised exception to its root cause.

    Args:
        phase: build, enter, eager, compile, run, backward or trace.
    """
    links = tuple(_links(error))
    return ErrorSeen(
        phase=phase,
        type=type(error).__name__,
        message=_message(error),
        chain=tuple((_class_names(link), _message(link)) for link in links),
        site=_site(links),
        stack=_stack(links),
    )


def is_documented(error: ErrorSeen, type_name: str, match: str) -> bool:
    """True when some exception of the chain has this class (or derives from it) and some message has the text.

    ``match`` is a regular expression, searched in every message: Dynamo wraps, so the raised one alone says little.
    """
    has_type = any(type_name in names.split("<") for names, _ in error.chain)
    return has_type and any(re.search(match, message) for _, message in error.chain)


def _links(error: BaseException) -> Iterator[BaseException]:
    """Depth first through Dynamo's ``inner_exception``, ``__cause__`` and ``__context__``, each exception once.

    A suppressed context is followed too: Dynamo raises InternalTorchDynamoError ``from None`` over the product's error.
    """
    seen: set[int] = set()
    pending = [error]
    while pending:
        link = pending.pop()
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        inner = (link.__context__, link.__cause__, getattr(link, "inner_exception", None))
        pending += [item for item in inner if isinstance(item, BaseException)]


def _class_names(error: BaseException) -> str:
    return "<".join(cls.__name__ for cls in type(error).__mro__ if cls is not object)


def _message(error: BaseException) -> str:
    return without_noise(str(error).partition(_ADVICE)[0].strip())[:MAX_TEXT]


def _site(links: tuple[BaseException, ...]) -> str:
    """The user's line: from Dynamo's own record of the traced code, else from the deepest traceback that has one."""
    records = (getattr(link, "real_stack", None) or () for link in links)
    traced = [[(frame.filename, frame.lineno) for frame in record] for record in records]
    return innermost(*traced, *(frames_of(link.__traceback__) for link in reversed(links)))


def _stack(links: tuple[BaseException, ...]) -> str:
    """Root cause first, as Python prints chains; runs of frames outside the user's code are folded into one line."""
    blocks: list[str] = []
    for link in reversed(links):
        lines = list(_frame_lines(link))
        lines.append(f"{type(link).__name__}: {_message(link)}")
        block = "\n".join(lines)
        if block not in blocks:  # a cause is often the context too, re-raised with the same text
            blocks.append(block)
    return "\n\nwhich led to\n\n".join(blocks)[-MAX_TEXT:]


def _frame_lines(error: BaseException) -> Iterator[str]:
    folded: list[str] = []
    for frame in traceback.extract_tb(error.__traceback__):
        if not is_user_file(frame.filename):
            folded.append(short_path(frame.filename))
            continue
        if folded:
            yield _folded(folded)
            folded = []
        yield f"  {short_path(frame.filename)}:{frame.lineno} in {frame.name}"
        if frame.line:
            yield f"    {frame.line}"
    if folded:
        yield _folded(folded)


def _folded(paths: list[str]) -> str:
    return f"  ... {len(paths)} frame(s) of torch, Python or the harness, last in {paths[-1]}"
