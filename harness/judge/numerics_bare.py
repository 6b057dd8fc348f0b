"""What can be said of numbers without an oracle: they are finite, and compiled computes what eager computes.

None of this sees FP8: a program that runs in high precision agrees with itself. So these checks have the names of the
full ones that they are a part of, and none of those by which a result counts as judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import torch

from harness.judge.compare import bit_difference, distance, same_bits
from harness.judge.numerics_bench import Bench
from harness.judge.numerics_program import bits_wanted, check_storage
from harness.judge.numerics_views import describe, tensors_of
from harness.observe.types import StepTensors
from harness.types import Finding

# Of a program that draws random numbers: AOT makes another operation of dropout on the CPU (native_dropout), which
# rounds otherwise, and rounding before a quantiser becomes some of its noise. Other draws are further off: two masks of
# probability p by sqrt(2 p).
DRAWN_DISTANCE = 0.25


def check_bare_finite(bench: Bench) -> list[Finding]:
    """Every value of every judged step is finite: there is nobody to say that it may not be."""
    findings = []
    for name, run in (("eager", bench.obs.eager), ("compiled", bench.obs.compiled)):
        for index, step in enumerate(run.steps if run is not None else ()):
            for tensor_name, tensor in tensors_of(step).items():
                bad = int((~torch.isfinite(tensor)).sum())
                if bad:
                    where = f"{name}, step {index}, {describe(tensor_name)}"
                    got = f"{bad} of {tensor.numel()} elements not finite"
                    findings.append(Finding("numerics.finite", "finite values", got, where))
    return findings


def check_bare_eager(bench: Bench) -> list[Finding]:
    """Compiled = eager bit for bit on the backends that run the same operations (near, where the program draws random
    numbers); others have no bound to be held to."""
    eager, compiled = bench.obs.eager, bench.obs.compiled
    findings = []
    for index, (one, two) in enumerate(zip(_steps(eager), _steps(compiled), strict=False)):
        for name, got in _differing(bench, one, two):
            findings.append(Finding("numerics.eager", "the bits of eager", got, f"compiled, step {index}, {name}"))
    return findings


def check_bare_later(bench: Bench) -> list[Finding]:
    """Every later compiled call against an eager step on the same batch; finite on both sides in any case."""
    findings = []
    for call in bench.obs.later:
        for side, step in (("eager", call.eager), ("compiled", call.compiled)):
            for name, tensor in tensors_of(step).items():
                if not bool(torch.isfinite(tensor).all()):
                    where = f"{call.name}, {side}, {describe(name)}"
                    findings.append(Finding("numerics.later", "finite values", "others", where))
        for name, got in _differing(bench, call.eager, call.compiled):
            findings.append(Finding("numerics.later", "what an untapped eager step gives", got, f"{call.name}, {name}"))
    return findings


def _steps(run: object) -> tuple[StepTensors, ...]:
    steps: tuple[StepTensors, ...] = getattr(run, "steps", ())
    return steps


def _differing(bench: Bench, eager: StepTensors, compiled: StepTensors) -> Iterator[tuple[str, str]]:
    """Names of tensors that differ where they must not, each with what is different."""
    one, two = tensors_of(eager), tensors_of(compiled)
    for name in sorted(one.keys() | two.keys()):
        if name not in one or name not in two:
            yield describe(name), "a tensor on one side only"
        elif one[name].shape != two[name].shape or one[name].dtype != two[name].dtype:
            yield describe(name), f"{tuple(two[name].shape)} {two[name].dtype}"
        elif bits_wanted(bench, name) and not same_bits(one[name], two[name]):
            differing = int(bit_difference(one[name], two[name]).sum())
            away_by = distance(two[name], one[name]) if bench.raw.draws else math.inf
            away = f", {away_by:.3g} of its norm away" if bench.raw.draws else ""
            if not away_by <= DRAWN_DISTANCE:
                yield describe(name), f"{differing} of {one[name].numel()} elements differ{away}"


BARE_CHECKS: Mapping[str, Callable[[Bench], list[Finding]]] = {
    "numerics.finite": check_bare_finite,
    "numerics.storage": check_storage,
    "numerics.eager": check_bare_eager,
    "numerics.later": check_bare_later,
}
