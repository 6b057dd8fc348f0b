"""Seeded faults. Adding one: a file here with a ``FAULT``, and a line in ``FAULTS``; run it as ``reference+NAME``."""

from collections.abc import Mapping

FAULTS: Mapping[str, str] = {}
