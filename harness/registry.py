"""Import of registered things by ``module:attribute`` path, with errors a user can act on."""

from __future__ import annotations

import importlib
import traceback
from typing import Any

from harness.ctrl_c import CtrlC


class LoadError(Exception):
    """A registered module could not be imported; the message names its file, line and error."""


def last_site(error: BaseException, prefer: str = "") -> str:
    """file:line where ``error`` arose: the last frame of the file ``prefer`` where there is one, else the last one that
    is not the import machinery's; of a SyntaxError the line that it is about. Empty where nothing is known."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    machinery = (__file__, importlib.__file__)
    frames = traceback.extract_tb(error.__traceback__)
    sites = [one for one in frames if one.filename not in machinery and not one.filename.startswith("<frozen")]
    last = next((one for one in reversed(sites) if one.filename == prefer), sites[-1] if sites else None)
    return f"{last.filename}:{last.lineno}" if last else ""


def load(path: str) -> Any:
    """Return the attribute named by ``package.module:attribute``.

    Raises:
        LoadError: the module raises at import or lacks the attribute.
    """
    module_name, _, attribute = path.partition(":")
    with CtrlC() as ctrl_c:
        try:
            module = importlib.import_module(module_name)
        except BaseException as error:  # a user's file may raise anything at import, also what stands for Ctrl-C
            if isinstance(error, KeyboardInterrupt) and ctrl_c.came:
                raise
            site = last_site(error)
            text = error.msg if isinstance(error, SyntaxError) else str(error)  # its str() has the place once more
            raise LoadError(
                f"{site}{': ' if site else ''}importing {module_name} raised {type(error).__name__}: {text}"
            ) from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        raise LoadError(f"{module_name} has no attribute {attribute!r}") from error
