"""Every bound and every equality of the numeric judge, by name: what docs/detection.md has a row for.

A name is a check and a part of it, as the checks call :meth:`Bench.meet` (value against a bound) and
:meth:`Bench.compared` (equality). A test holds this list against the calls in the code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Name = tuple[str, str]  # check, part

# A good value nearer to its bound than this is work to do: the bound, or what is measured, is not understood.
LARGEST_GOOD = 0.5

UNDECIDED: Name = ("numerics.alpha", "undecided")


@dataclass(frozen=True)
class Bound:
    """One row. ``value`` says what is compared; ``made_in`` names the function that does it, ``module.function``.

    ``absent``: what would meet it, for a machine where no run did. ``reached``: what correct arithmetic reaches by
    construction, so that a value as large as this is no news.
    """

    name: Name
    value: str
    made_in: str
    absent: str = ""
    reached: float = 0.0


_ADMISSIBLE = "difference from the oracle / admissible difference, largest element"
_PRODUCT = "accumulation error of one product / accumulator's factor(K) · Σ|a||b|, largest element"
_ALPHA = "|α − 1| / half the interval"
_COMPILED = "compiled − eager / what the oracle allows both, largest element"
_LATER = "norm of compiled − eager / three times the quantisation noise + 8 roundings"
_FEW = "inductor, or tensors that two eager runs give differently"
_TIE = "difference / the roundings of adding a bias (a sum rounded once, of a rounded product, uses up to half)"
_PARAMETER = "parameters that are neither weight nor bias"

_PROGRAM_PARTS = {
    "output with bias": "",
    "output": "outputs that are not those of a linear with bias",
    "input gradient": "",
    "weight gradient": "",
    "bias gradient": "",
    "parameter gradient": _PARAMETER,
    "with measured noise": "operations that amplify rounding (norms, softmax)",
}
_FAST = "kernels that are asked for fast accumulation"
_KERNEL_PARTS = {
    **dict.fromkeys(("fprop", "dgrad", "wgrad"), ""),
    **{f"{product}, fast accumulation": _FAST for product in ("fprop", "dgrad", "wgrad")},
}
_ALPHA_PARTS = ("whole tensor", "fprop", "dgrad", "wgrad")
_TENSORS = {
    "output": "",
    "input gradient": "",
    "weight gradient": "",
    "bias gradient": "",
    "parameter gradient": _PARAMETER,
}


def _rows(check: str, parts: Mapping[str, str], value: str, made_in: str) -> list[Bound]:
    return [Bound((check, part), value, made_in, absent) for part, absent in parts.items()]


BOUNDS: Sequence[Bound] = (
    *_rows("numerics.kernel", _KERNEL_PARTS, _PRODUCT, "numerics_tap.check_kernel"),
    *_rows("numerics.program", _PROGRAM_PARTS, _ADMISSIBLE, "numerics_program.check_program"),
    *_rows("numerics.alpha", dict.fromkeys(_ALPHA_PARTS, ""), _ALPHA, "numerics_program.check_alpha"),
    Bound(
        ("numerics.tap", "source of input"),
        "recorded source − the oracle's tensor / admissible difference, largest element",
        "numerics_tap._source_faults",
    ),
    Bound(
        ("numerics.tap", "source of grad_output"),
        "recorded source − the oracle's tensor / admissible difference, largest element",
        "numerics_tap._source_faults",
    ),
    Bound(
        ("numerics.tap", "output = recorded output + bias"),
        _TIE,
        "numerics_tap._output_fault",
        reached=0.5,
    ),
    Bound(
        ("numerics.nonzero", "share of zeros"),
        "zeros where the oracle clearly has none / one in 64",
        "numerics_program.check_nonzero",
    ),
    *_rows(
        "numerics.eager",
        {part: absent or f"compiled runs on {_FEW}" for part, absent in _TENSORS.items()},
        _COMPILED,
        "numerics_program._compare_with_eager",
    ),
    *_rows(
        "numerics.later",
        {part: absent or f"later compiled calls on {_FEW}" for part, absent in _TENSORS.items()},
        _LATER,
        "numerics_program._later_fault",
    ),
    Bound(
        ("numerics.later", "eager step, tap off"),
        "eager step after the judged ones, tap off, from the oracle's / noise of quantisation",
        "numerics_program._unlike_oracle",
        "a later step beside the oracle, in runs since 2026-12-02",
    ),
)

EQUALITIES: Sequence[Bound] = (
    Bound(("numerics.finite", "values"), "finite where the oracle is", "numerics_program.check_finite"),
    Bound(("numerics.scales", "values"), "scale = the oracle's", "numerics_tap._operand_findings"),
    Bound(("numerics.codes", "values"), "code = the oracle's", "numerics_tap._operand_findings"),
    Bound(
        ("numerics.tap", "one record for each product"),
        "FP8 products that the program asks for",
        "numerics_tap._count_faults",
    ),
    Bound(
        ("numerics.tap", "sources that are the program's own"),
        "bits of inputs, weights and output gradients",
        "numerics_tap._source_faults",
    ),
    Bound(
        ("numerics.tap", "gradient = recorded output"),
        "gradients that are one product's result",
        "numerics_tap._tie_faults",
    ),
    Bound(("numerics.storage", "pairs of tensors"), "no storage in common", "numerics_program.check_storage"),
    Bound(
        ("numerics.storage", "results of other calls"),
        "no result overwritten by a later call",
        "numerics_program._overwritten",
        "outputs as they were returned, in runs since 2026-12-02",
    ),
    Bound(("numerics.eager", "bits"), "compiled = eager (aot_eager)", "numerics_program._same"),
    Bound(("numerics.later", "bits"), "later compiled calls = eager (aot_eager)", "numerics_program._same"),
)


def names() -> Iterator[Name]:
    """Every name that a tally may have."""
    yield from (bound.name for bound in (*BOUNDS, *EQUALITIES))
    yield UNDECIDED
