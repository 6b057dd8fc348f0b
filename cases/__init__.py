"""Programs that cells run. Adding one: a file here with a ``CASE``, and a line in ``CASES``.

The table holds import paths, not modules, so that planning needs no torch (harness.types.CaseEntry).
"""

from collections.abc import Mapping

from harness.types import NESTINGS, RECIPES, CaseEntry

CASES: Mapping[str, CaseEntry] = {
    "toy_linear": CaseEntry("cases.toy_linear:CASE", nestings=NESTINGS),
    "autocast_outside": CaseEntry("cases.autocast_outside:CASE", pair=("",)),
    "amax_edges": CaseEntry(
        "cases.amax_edges:CASE",
        variants=(
            "zeros",
            "zero_row",
            "zero_block",
            "zero_weight",
            "zero_gradient",
            "huge",
            "tiny",
            "scale_overflow",
            "infinite",
            "nan",
            "empty",
        ),
    ),
    "cudagraph": CaseEntry(
        "cases.cudagraph:CASE",
        variants=("reduce_overhead", "captured", "kept_weight"),
        recipes=tuple(name for name in RECIPES if name != "delayed_scaling"),  # its scales move in Python
    ),
    "dynamic_shapes": CaseEntry(
        "cases.dynamic_shapes:CASE", variants=("varying", "marked", "batch_one", "misaligned")
    ),
    "multi_step": CaseEntry("cases.multi_step:CASE"),
    "stack": CaseEntry(
        "cases.stack:CASE", variants=("whole", "shared", "by_module"), pair=("whole", "shared", "by_module")
    ),
}
