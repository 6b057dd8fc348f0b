"""Checks of the program's own tensors: output, input gradients, parameter gradients. They don't look at the tap."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import torch

from harness.judge.alpha import DECISIVE, Alpha
from harness.judge.compare import Worst, bit_difference, distance, first_index, norm, same_bits, within
from harness.judge.later_batch import follow, followed
from harness.judge.numerics_bench import Bench
from harness.judge.numerics_views import View, describe, kind_of, tensors_of
from harness.judge.oracle_engine import DGRAD, FPROP, WGRAD
from harness.judge.oracle_steps import OUTPUT
from harness.observe.types import RunSeen
from harness.types import Finding

Weights = Mapping[str, torch.Tensor]
BIT_EQUAL_BACKENDS = ("eager", "aot_eager")

# An element is clearly not zero where the oracle's exceeds the admissible difference this many times.
ZERO_FACTOR = 4.0

# Values that are merely wrong hit zero now and then; what never arrived or was flushed is zero in whole lines.
ZERO_SHARE = 1 / 64


def check_finite(bench: Bench) -> list[Finding]:
    """Finite wherever the oracle is. First of all checks: a NaN must never pass a comparison."""
    findings = []
    for view, step, name, seen, own in bench.fresh_tensors():
        if seen.shape != own.shape:
            continue  # numerics.program reports shapes
        bad = torch.isfinite(own) & ~torch.isfinite(seen)
        bench.compared("numerics.finite", "values", own.numel(), int(bad.sum()))
        if bool(bad.any()):
            index = first_index(bad)
            got = f"{seen[index].item()} at {list(index)} ({int(bad.sum())} of {bad.numel()} elements)"
            where = view.tensor_place(step, name)
            findings.append(Finding("numerics.finite", f"finite, as the oracle ({own[index].item():.4g})", got, where))
    return findings


def check_nonzero(bench: Bench) -> list[Finding]:
    """Not zero where the oracle is clearly not: a gradient that never arrived, a block that was flushed."""
    findings = []
    for view, step, name, seen, own in bench.fresh_tensors():
        if seen.shape != own.shape or own.numel() == 0:
            continue
        clear = own.abs() > ZERO_FACTOR * bench.allowed(view, step, name)
        bad = (seen == 0) & clear
        share = int(bad.sum()) / max(ZERO_SHARE * int(clear.sum()), 1.0)
        bench.meet("numerics.nonzero", share, view.tensor_place(step, name), "share of zeros")
        if _structural(bad, clear):
            index = first_index(bad)
            got = f"0 at {list(index)} ({int(bad.sum())} of {int(clear.sum())} elements)"
            where = view.tensor_place(step, name)
            findings.append(Finding("numerics.nonzero", f"{own[index].item():.4g}, not zero", got, where))
    return findings


def _structural(bad: torch.Tensor, clear: torch.Tensor) -> bool:
    """True when zeros make up a share of the tensor, or all of a row or column (of eight or more clear elements)."""
    if not bool(bad.any()):
        return False
    if int(bad.sum()) > ZERO_SHARE * int(clear.sum()):
        return True
    lines = [(bad.sum(d), clear.sum(d)) for d in range(bad.dim())] if bad.dim() > 1 else []
    return any(bool(((zeros == wanted) & (wanted >= 8)).any()) for zeros, wanted in lines)


def check_storage(bench: Bench) -> list[Finding]:
    """Each run's tensors own their storage: a comparison of a tensor with itself proves nothing, and a result that lies
    where another call's does is overwritten while a user holds it."""
    runs = [(n, r) for n, r in _named_runs(bench) if r is not None]
    findings = _overwritten(bench, runs)
    for (name, run), (other_name, other) in itertools.combinations(runs, 2):
        for step, (one, two) in enumerate(zip(run.steps, other.steps, strict=False)):
            theirs = tensors_of(two)
            for tensor_name, tensor in tensors_of(one).items():
                if tensor_name not in theirs:
                    continue
                shared = _share_storage(tensor, theirs[tensor_name])
                bench.compared("numerics.storage", "pairs of tensors", differing=int(shared))
                if shared:
                    where = f"{describe(tensor_name)}, step {step}"
                    got = f"one storage for {name} and {other_name}"
                    findings.append(Finding("numerics.storage", "a storage of its own for each run", got, where))
    return findings


def _overwritten(bench: Bench, runs: Sequence[tuple[str, RunSeen]]) -> list[Finding]:
    """Outputs, as they were returned, in one storage. A user's own module may return a buffer of its own."""
    if bench.raw.expects is None or not bench.raw.expects.stated:
        return []
    held = [
        (f"{name} step {index}", step.returned)
        for name, run in runs
        for index, step in enumerate(run.steps)
        if step.returned is not None
    ]
    findings = []
    for (one, first), (two, second) in itertools.combinations(held, 2):
        bench.compared("numerics.storage", "results of other calls")
        if _share_storage(first, second):
            got = f"one storage for those of {one} and {two}"
            findings.append(Finding("numerics.storage", "a storage of its own for each result", got, describe(OUTPUT)))
    return findings


def _named_runs(bench: Bench) -> tuple[tuple[str, RunSeen | None], ...]:
    obs = bench.raw  # moved to another device, every tensor would have its own storage
    return (("eager", obs.eager), ("eager again", obs.eager_again), ("compiled", obs.compiled))


def _share_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.numel() > 0 and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def check_eager(bench: Bench) -> list[Finding]:
    """Compiled against eager: the same bits where the graph is the same operations, else within a derived bound.

    The bound (inductor, or a tensor that two eager runs gave differently) is what the oracle allows each side, plus the
    difference of the oracle's own results for the operands that each side's FP8 products were given.
    """
    by_name = {view.name: view for view in bench.views}
    if len(by_name) < 2:
        return []
    eager, compiled = by_name["eager"], by_name["compiled"]
    findings = []
    for step, (one, two) in enumerate(zip(eager.run.steps, compiled.run.steps, strict=False)):
        theirs = tensors_of(two)
        for name, expected in tensors_of(one).items():
            if name not in theirs:
                findings.append(_eager_finding(compiled, step, name, "a tensor, as in eager", "none"))
            elif same_bits(expected, theirs[name]):
                _same(bench, "numerics.eager", name, compiled.tensor_place(step, name))
            else:
                findings += _compare_with_eager(bench, eager, compiled, step, name)
        findings += _compare_weights(bench, compiled, step, one.weights, two.weights)
    return findings


def _compare_weights(bench: Bench, compiled: View, step: int, eager: Weights, seen: Weights) -> list[Finding]:
    """The weights that the step's update left: as in eager, where gradients are. Elsewhere each side's next step starts
    from weights of its own, and the oracle follows each."""
    findings = []
    for name in sorted(eager.keys() | seen.keys()):
        place = f"{compiled.tensor_place(step, name)} after the update"
        if name not in eager or name not in seen:
            findings.append(Finding("numerics.eager", "weights on both sides", "on one side only", place))
        elif bits_wanted(bench, name) and not same_bits(eager[name], seen[name]):
            findings.append(Finding("numerics.eager", "the bits of eager", "other weights", place))
    return findings


def bits_wanted(bench: Bench, name: str) -> bool:
    """True when compiled must have the bits of eager."""
    return bench.axes.backend in BIT_EQUAL_BACKENDS and name not in bench.nondeterministic


def _same(bench: Bench, check: str, name: str, where: str, *, same: bool = True) -> None:
    """Note a tensor that had the same bits, whether or not it had to, or that lacks them although it must have them."""
    if bits_wanted(bench, name):
        bench.compared(check, "bits", differing=int(not same))
    elif same:
        bench.meet(check, 0.0, where, kind_of(name))


def _eager_finding(compiled: View, step: int, name: str, expected: str, got: str) -> Finding:
    return Finding("numerics.eager", expected, got, compiled.tensor_place(step, name))


def _compare_with_eager(bench: Bench, eager: View, compiled: View, step: int, name: str) -> list[Finding]:
    """Findings for one tensor whose bits differ."""
    expected, got = tensors_of(eager.run.steps[step])[name], tensors_of(compiled.run.steps[step])[name]
    if expected.shape != got.shape or expected.dtype != got.dtype:
        shapes = f"{tuple(expected.shape)} {expected.dtype}", f"{tuple(got.shape)} {got.dtype}"
        return [_eager_finding(compiled, step, name, *shapes)]
    own, other = tensors_of(eager.oracle.steps[step]).get(name), tensors_of(compiled.oracle.steps[step]).get(name)
    equal_bits = bits_wanted(bench, name)
    if own is None or other is None:
        worst = within((got.double() - expected.double()).abs(), torch.zeros_like(expected, dtype=torch.float64))
    else:
        bound = bench.allowed(eager, step, name) + bench.allowed(compiled, step, name) + (other - own).abs()
        worst = within((got.double() - expected.double()).abs(), bound)
        bench.meet("numerics.eager", worst.ratio, compiled.tensor_place(step, name), kind_of(name))
    if not equal_bits:
        if worst.ok:
            return []
        text = f"eager within {worst.bound:.3g}"
        return [_eager_finding(compiled, step, name, text, f"a difference of {worst}{_side(expected, got, own)}")]
    _same(bench, "numerics.eager", name, compiled.tensor_place(step, name), same=False)
    differing = int(bit_difference(expected, got).sum())
    detail = f"{differing} of {got.numel()} elements differ, by up to {worst.value:.3g} at {list(worst.index)}"
    return [_eager_finding(compiled, step, name, "the bits of eager", detail + _side(expected, got, own))]


def _side(eager: torch.Tensor, compiled: torch.Tensor, own: torch.Tensor | None) -> str:
    """Which of two differing results the oracle is nearer to."""
    if own is None or own.shape != eager.shape:
        return ""
    distances = norm(eager.double() - own), norm(compiled.double() - own)
    if not distances[0] <= 2 * distances[1]:
        return "; the oracle sides with compiled"
    return "; the oracle sides with eager" if not distances[1] <= 2 * distances[0] else ""


# Two correct runs that quantise bits that differ by rounding are each off by at most the quantisation noise, their
# difference by sqrt(2) of it; as much again for data that differs from call to call.
LATER_NOISES = 3.0
LATER_UNITS = 8.0
AGAINST_ORACLE = "eager step, tap off"  # the part of numerics.later that looks beyond eager


def check_later(bench: Bench) -> list[Finding]:
    """Every later compiled call against an eager step on the same batch, the tap off: the profiled and the steady ones.

    Bit-equal where the graph is the same operations. Elsewhere the relative difference (Frobenius) stays within
    ``LATER_NOISES`` times the quantisation noise of the judged step, plus ``LATER_UNITS`` roundings. Finite in any
    case: where both sides are not, bits prove nothing.
    """
    findings = []
    for call in bench.obs.later:
        eager = tensors_of(call.eager)
        compiled = tensors_of(call.compiled)
        for name in sorted(eager.keys() | compiled.keys()):
            where = f"{call.name}{', tapped' if call.tapped else ', tap off'}, {describe(name)}"
            got = _later_fault(bench, name, eager.get(name), compiled.get(name), where)
            if got:
                findings.append(Finding("numerics.later", "what an untapped eager step gives", got, where))
    return findings + _unlike_oracle(bench)


def _unlike_oracle(bench: Bench) -> list[Finding]:
    """The first later eager step against the oracle's run of its batch: the judged steps were watched, it is not."""
    call = followed(bench.obs, bench.view.oracle)
    if call is None or bench.axes.target:  # a user's own module may keep what it likes from the steps before
        return []
    own = follow(bench.obs, call, bench.dtype, bench.accumulator)
    findings = []
    seen = tensors_of(call.eager)
    for name, tensor in own.quantised.items():
        noise = own.noise(name)
        if name not in seen or noise == 0:
            continue  # a tensor on one side only is numerics.program's; without FP8 nothing bounds it from below
        limit = LATER_NOISES * noise + LATER_UNITS * bench.precision.unit
        off = distance(seen[name], tensor)
        where = f"{call.name}, eager, tap off, {describe(name)}"
        bench.meet("numerics.later", off / limit, where, AGAINST_ORACLE)
        if not off <= limit:
            expected = f"the oracle's for that batch, within {limit:.3g} of its norm"
            findings.append(Finding("numerics.later", expected, f"{off:.3g} of its norm away", where))
    return findings


def _later_fault(bench: Bench, name: str, eager: torch.Tensor | None, compiled: torch.Tensor | None, where: str) -> str:
    if eager is None or compiled is None:
        return "a tensor on one side only"
    if eager.shape != compiled.shape or eager.dtype != compiled.dtype:
        return f"{tuple(compiled.shape)} {compiled.dtype} for {tuple(eager.shape)} {eager.dtype}"
    for side, tensor in (("eager", eager), ("compiled", compiled)):
        if not bool(torch.isfinite(tensor).all()):
            return f"{int((~torch.isfinite(tensor)).sum())} of {tensor.numel()} elements not finite ({side})"
    if same_bits(eager, compiled):
        _same(bench, "numerics.later", name, where)
        return ""
    off = distance(compiled, eager)
    if bits_wanted(bench, name):
        _same(bench, "numerics.later", name, where, same=False)
        return f"other bits, {off:.3g} of its norm away"
    limit = LATER_NOISES * _noise_ratio(bench, name) + LATER_UNITS * bench.precision.unit
    bench.meet("numerics.later", off / limit, where, kind_of(name))
    return "" if off <= limit else f"{off:.3g} of its norm away, where {limit:.3g} is allowed"


def _noise_ratio(bench: Bench, name: str) -> float:
    """Quantisation noise over signal in the judged step's tensor, by the oracle; 0 where it has none."""
    oracle = bench.view.oracle
    own, bare = tensors_of(oracle.steps[-1]).get(name), oracle.unquantised.get(name)
    if own is None or bare is None or norm(own) == 0:
        return 0.0
    return norm(own - bare) / norm(own)


def check_program(bench: Bench) -> list[Finding]:
    """Output and gradients against the oracle's run of the same program, elementwise within the admissible difference.

    Catches what happens between the products: a gradient scaled twice, a lost bias, a transposed result, a layer that
    ran under another region's recipe or in high precision.
    """
    findings = [f for view in bench.views for f in _missing(view)]
    for view, step, name, seen, own in bench.fresh_tensors():
        where = view.tensor_place(step, name)
        if seen.shape != own.shape:
            got = f"shape {tuple(seen.shape)}"
            findings.append(Finding("numerics.program", f"shape {tuple(own.shape)}", got, where))
            continue
        value = seen.to(torch.float64)
        worst = within((value - own).abs(), bench.allowed(view, step, name))
        bench.meet("numerics.program", worst.ratio, where, bench.part_of(view, step, name))
        if not worst.ok:
            expected = f"the oracle's {own[worst.index].item():.4g} within {worst.bound:.3g}"
            got = f"{value[worst.index].item():.4g}, a difference of {worst}{_factor(value, own, worst)}"
            findings.append(Finding("numerics.program", expected, got, where))
    return findings


def _missing(view: View) -> Iterator[Finding]:
    for step, seen, own in view.steps():
        for name in tensors_of(own).keys() - tensors_of(seen).keys():
            yield Finding("numerics.program", "a gradient", "none", view.tensor_place(step, name))
        for name in tensors_of(seen).keys() - tensors_of(own).keys():
            yield Finding("numerics.program", "no gradient", "one", view.tensor_place(step, name))


def _factor(value: torch.Tensor, own: torch.Tensor, worst: Worst) -> str:
    """ "; the whole tensor is f times the oracle's" where that explains most of the deviation."""
    square = float((own * own).sum())
    if square == 0 or not math.isfinite(worst.ratio):
        return ""
    factor = float((value * own).sum()) / square
    explained = norm(value - factor * own) < 0.25 * norm(value - own)
    return f"; the whole tensor is {factor:.4g} times the oracle's" if explained and abs(factor - 1) > 0.01 else ""


def check_alpha(bench: Bench) -> list[Finding]:
    """alpha in its interval about 1, for each tensor as a whole and for each FP8 product by itself."""
    findings = []
    for name, results in bench.alphas.items():
        failed = [a for a in results if a.decisive and not a.ok]
        for a in results:
            if a.decisive:
                bench.meet("numerics.alpha", _ratio(a), f"{describe(name)}, {a.label}", _alpha_part(a))
            else:
                bench.compared("numerics.alpha", "undecided")
        # The first product in the order of data flow that is far off is the cause: later ones quantise another input
        # because of it, and earlier ones take up a little of its error in the least squares.
        culprits = [a for a in failed if a.label != "all"] or failed
        if culprits:
            first = next((a for a in culprits if not abs(a.alpha - 1.0) <= DECISIVE / 2), culprits[0])
            expected = f"alpha 1 ± {first.bound:.3g} (1: FP8 as specified, 0: no FP8)"
            where = f"{bench.view.name}, {describe(name)}, {first.label}"
            more = f"; {len(culprits) - 1} more products are off" if len(culprits) > 1 else ""
            findings.append(Finding("numerics.alpha", expected, f"alpha {first.alpha:.4g}{more}", where))
    return findings


def _alpha_part(a: Alpha) -> str:
    """The product that a label speaks of, or the whole tensor."""
    return next((word for word in a.label.split() if word in (FPROP, DGRAD, WGRAD)), "whole tensor")


def _ratio(a: Alpha) -> float:
    ratio = abs(a.alpha - 1.0) / a.bound if a.bound > 0 else math.inf
    return ratio if ratio == ratio else math.inf


def undecided(bench: Bench) -> list[str]:
    """Tensors in which alpha has nothing to decide: rounding noise exceeds quantisation, or there is none of it."""
    return [name for name, results in bench.alphas.items() if not any(a.decisive for a in results)]
