"""Import of registered things by ``module:attribute`` path, with errors a user can act on."""

from __future__ import annotations

import importlib
import traceback
from typing import Any


class LoadError(Exception):
    """A registered module could not be imported; the message names its file, line and error."""


def load(path: str) -> Any:
    """Return the attribute named by ``package.module:attribute``.

    Raises:
        LoadError: the module raises at import or lacks the attribute.
    """
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's file may raise anything at import
        frames = traceback.extract_tb(error.__traceback__)
        last = frames[-1] if frames else None
        site = f"{last.filename}:{last.lineno}: " if last else ""
        raise LoadError(f"{site}importing {module_name} raised {type(error).__name__}: {error}") from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        raise LoadError(f"{module_name} has no attribute {attribute!r}") from error
