"""Programs that cells run. Adding one: a file here with a ``CASE``, and a line in ``CASES``.

The table holds import paths, not modules, so that planning needs no torch.
"""

from collections.abc import Mapping

CASES: Mapping[str, str] = {
    "toy_linear": "cases.toy_linear:CASE",
}
