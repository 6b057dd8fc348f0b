"""Programs that cells run. Adding one: a file here with a ``CASE``, and a line in ``CASES``.

The table holds import paths, not modules, so that planning needs no torch (harness.types.CaseEntry).
"""

from collections.abc import Mapping

from harness.types import NESTINGS, RECIPES, CaseEntry

# Recipes without scales of earlier steps: those that compile (NVIDIA/TransformerEngine#2759), and whose weights and
# captured graphs can be kept.
STATELESS = tuple(name for name in RECIPES if name != "delayed_scaling")

CASES: Mapping[str, CaseEntry] = {
    "toy_linear": CaseEntry("cases.toy_linear:CASE", nestings=NESTINGS),
    "amp": CaseEntry("cases.amp:CASE", variants=("around", "inside", "in_region", "backward_under")),
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
            "largest_last",
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
        recipes=STATELESS,
    ),
    "dynamic_shapes": CaseEntry("cases.dynamic_shapes:CASE", variants=("varying", "marked", "batch_one", "misaligned")),
    "frozen": CaseEntry("cases.frozen:CASE"),
    "derived": CaseEntry("cases.derived:CASE", variants=("parametrized", "sliced")),
    "layouts": CaseEntry("cases.layouts:CASE"),
    "multi_step": CaseEntry("cases.multi_step:CASE"),
    "stack": CaseEntry(
        "cases.stack:CASE",
        variants=("whole", "shared", "normed", "by_module"),
        pair=("whole", "shared", "normed", "by_module"),
    ),
    "backward_outside": CaseEntry(
        "cases.backward_outside:CASE",
        variants=("other_region", "disabled_region", "overtaken", "twice", "compiled_autograd"),
        pair=("other_region", "overtaken"),
    ),
    "checkpoint": CaseEntry(
        "cases.checkpoint:CASE",
        variants=(
            "own_around",
            "own_inside",
            "own_both",
            "torch_inside",
            "torch_inside_skip",
            "torch_around",
            "torch_backward_inside",
            "reentrant_inside",
            "reentrant_inside_skip",
            "reentrant_around",
        ),
        nestings=NESTINGS,
        pair=("own_both",),
    ),
    "microbatch": CaseEntry(
        "cases.microbatch:CASE",
        variants=("flag", "skip_tensor", "no_grad_first", "accumulated", "other_recipe"),
        recipes=STATELESS,
    ),
    "mode_switch": CaseEntry(
        "cases.mode_switch:CASE", variants=("train_first", "eval_first", "no_grad_first", "inference_first")
    ),
    "recipe_switch": CaseEntry(
        "cases.recipe_switch:CASE",
        variants=("inside", "around", "held", "mutated"),
        recipes=STATELESS,
    ),
    "disabled": CaseEntry(
        "cases.disabled:CASE",
        variants=("before", "inside", "around", "given", "twelve"),
        pair=("inside", "around", "twelve"),
    ),
    "default_recipe": CaseEntry("cases.default_recipe:CASE", variants=("alone", "inside")),
    "delayed_scaling": CaseEntry(
        "cases.delayed_scaling:CASE",
        variants=("inside", "around", "nested", "checkpoint", "try_except", "resized", "shared", "calibrated"),
        recipes=("delayed_scaling",),
        pair=("nested",),
    ),
    "unsupported_recipe": CaseEntry("cases.unsupported_recipe:CASE", pair=("",)),
    "exception": CaseEntry(
        "cases.exception:CASE",
        variants=("python", "op", "nested", "swallowed", "backward", "interrupted"),
        pair=("nested", "swallowed", "interrupted"),
    ),
    "reset_between_calls": CaseEntry(
        "cases.reset_between_calls:CASE",
        variants=("between", "inside", "traced", "replay"),
        recipes=STATELESS,
        pair=("inside", "traced"),
    ),
    "first_module": CaseEntry(
        "cases.first_module:CASE",
        variants=("nested", "inner_first", "sequential", "outside", "exception", "recompute"),
        pair=("nested", "inner_first", "sequential", "exception"),
    ),
    "hoisted": CaseEntry(
        "cases.hoisted:CASE",
        variants=("object", "late", "decorator", "twice"),
        recipes=STATELESS,
        pair=("object", "late", "decorator"),
    ),
    "target": CaseEntry("cases.target:CASE"),
    "canary": CaseEntry("cases.canary:CASE", recipes=("float8_current_scaling",)),
    "support_constant": CaseEntry("cases.support_constant:CASE"),
    "threads": CaseEntry("cases.threads:CASE", variants=("inside", "own_region", "at_once"), pair=("own_region",)),
}
