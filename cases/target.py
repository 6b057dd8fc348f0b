"""The user's own module: ``target: package.module:attribute`` in the matrix, through every check that applies.

Catches whatever toy programs don't show: a break in the user's own forward, a layer that is never FP8 because of its
shapes, an operator between the layers that compiles to something else. Where the user states no graphs and no FP8
products they are shown and not judged, but there must be some; where the FP8 layers are not made by the context there
is no oracle, and the numbers are held against eager alone (docs/target.md).
"""

from __future__ import annotations

from harness.program import Case
from harness.providers.protocol import Provider
from harness.targets import build_target, load_target
from harness.types import Axes


def unavailable(provider: Provider, axes: Axes, arch: str) -> str:
    """Nothing can be unavailable; a target that can't be imported stops the run here, as a broken case file does.

    Raises:
        LoadError: it can't be imported.
    """
    del provider, arch
    load_target(axes.target)
    return ""


CASE = Case(
    name="target",
    build=build_target,
    catches="what a program of the user's own breaks",
    answers=("pytorch/ao#2586", "pytorch/torchtitan#3990"),
    unavailable=unavailable,
)
