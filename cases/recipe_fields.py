"""Two values for every field of every recipe, for cases that need recipes which differ in one field alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from harness.providers.protocol import ProgramProvider
from harness.types import Scalar, Spec

# The first value is what a recipe means that doesn't say (harness.plan.recipes). The second one changes the bytes of
# some operand of any program: 1.0 is more than the amax of every weight that the harness fills (harness.data).
_FORMAT = {"fp8_format": ("HYBRID", "E4M3")}
_E4M3 = {"fp8_format": ("E4M3", "HYBRID")}
_PER_TENSOR: Mapping[str, tuple[Scalar, Scalar]] = {"power_2_scale": (False, True), "amax_epsilon": (0.0, 1.0)}
VALUES: Mapping[str, Mapping[str, tuple[Scalar, Scalar]]] = {
    "delayed_scaling": {
        **_FORMAT,
        "margin": (0, 1),
        "amax_history_len": (1024, 2),
        "amax_compute_algo": ("max", "most_recent"),
    },
    "float8_current_scaling": {**_FORMAT, **_PER_TENSOR},
    "float8_rowwise_scaling": {**_E4M3, **_PER_TENSOR},
    "float8_block_scaling": {**_E4M3, "use_f32_scales": (False, True), "amax_epsilon": (0.0, 1.0)},
    "mxfp8_block_scaling": {**_E4M3, "scale_rounding": ("ceil", "floor")},
    "nvfp4_block_scaling": {
        "disable_2d_quantization": (False, True),
        # What these two switch off has no result that can be compared: they tell recipes apart and are never run.
        "disable_rht": (True, False),
        "disable_stochastic_rounding": (True, False),
    },
}
RANDOM = ("disable_rht", "disable_stochastic_rounding")


def with_fields(spec: Spec, values: Mapping[str, Scalar]) -> Spec:
    """``spec`` with these fields set, whatever it said of them."""
    return Spec(spec.name, tuple(sorted({**spec.as_dict(), **values}.items())))


def with_other(spec: Spec, field: str) -> Spec:
    """``spec`` with another value of ``field`` and nothing else changed."""
    usual, other = VALUES[spec.name][field]
    now = spec.as_dict().get(field, usual)
    return with_fields(spec, {field: usual if now == other else other})


def makes(provider: ProgramProvider, spec: Spec) -> bool:
    """True when the provider has this recipe with these fields; it says ValueError otherwise."""
    try:
        provider.recipe(spec)
    except ValueError:
        return False
    return True


def others_of(provider: ProgramProvider, spec: Spec, *, computable: bool = True) -> Iterator[tuple[str, Spec]]:
    """Field and recipe for each recipe that the provider makes and that differs from ``spec`` in that field alone.

    ``computable``: leave out those whose results depend on random numbers.
    """
    for field in VALUES[spec.name]:
        if computable and field in RANDOM:
            continue
        other = with_other(spec, field)
        if makes(provider, other):
            yield field, other
