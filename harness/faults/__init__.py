"""Seeded faults. Adding one: a file here with a ``FAULT``, and a line in ``FAULTS``; run it as ``reference+NAME``."""

from collections.abc import Mapping

FAULTS: Mapping[str, str] = {
    "bf16_backward": "harness.faults.bf16_backward:FAULT",
    "bf16_products": "harness.faults.bf16_products:FAULT",
    "counting_state": "harness.faults.counting_state:FAULT",
    "data_dependent_branch": "harness.faults.data_dependent_branch:FAULT",
    "dgrad_doubled": "harness.faults.dgrad_doubled:FAULT",
    "disabled_setter": "harness.faults.disabled_setter:FAULT",
    "e5m2_for_e4m3": "harness.faults.e5m2_for_e4m3:FAULT",
    "emulated_as_native": "harness.faults.emulated_as_native:FAULT",
    "exit_skipped_on_exception": "harness.faults.exit_skipped_on_exception:FAULT",
    "hang": "harness.faults.hang:FAULT",
    "leaky_exit": "harness.faults.leaky_exit:FAULT",
    "out_of_memory": "harness.faults.out_of_memory:FAULT",
    "outer_recipe_inside": "harness.faults.outer_recipe_inside:FAULT",
    "plain_refusal": "harness.faults.plain_refusal:FAULT",
    "planned_tap": "harness.faults.planned_tap:FAULT",
    "print_in_linear": "harness.faults.print_in_linear:FAULT",
    "recipe_by_identity": "harness.faults.recipe_by_identity:FAULT",
    "round_toward_zero": "harness.faults.round_toward_zero:FAULT",
    "scale_doubled": "harness.faults.scale_doubled:FAULT",
    "scale_times_eight": "harness.faults.scale_times_eight:FAULT",
    "scale_wasted": "harness.faults.scale_wasted:FAULT",
    "segfault": "harness.faults.segfault:FAULT",
    "shared_weight_gradient_lost": "harness.faults.shared_weight_gradient_lost:FAULT",
    "stale_scale": "harness.faults.stale_scale:FAULT",
    "weight_kept_over_steps": "harness.faults.weight_kept_over_steps:FAULT",
    "wrong_from_second_call": "harness.faults.wrong_from_second_call:FAULT",
    "wrong_unwatched": "harness.faults.wrong_unwatched:FAULT",
}
