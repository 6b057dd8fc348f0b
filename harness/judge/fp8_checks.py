"""Did FP8 happen, and with which recipe? Evidence that does not come from numerics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.judge.check import Check, Judging, one
from harness.observe.types import RunSeen
from harness.types import Finding

NARROW = ("float8", "float4")


def expected_gemms(j: Judging) -> Counter[str]:
    """FP8 GEMMs of one step by kind, from the case's linears and the provider's support level of each recipe."""
    linears = j.expects.fp8_linears
    counts: Counter[str] = Counter()
    for label in linears:
        level = j.obs.support.get(label, ("native", "", ""))[0]
        counts["fp8_native" if level == "native" else "fp8_emulated"] += 3
    if j.expects.fp8_gemms is not None and linears:
        kind = max(counts, key=lambda name: counts[name])
        counts = Counter({kind: j.expects.fp8_gemms})
    return counts


def gemms(j: Judging) -> Sequence[Finding]:
    """GEMMs that the profiler saw with FP8 operands = those the case states. Sees bf16 in place of FP8, FP8 in forward
    alone, and emulation that passes for native; a GEMM of unknown kind never counts."""
    seen: Counter[str] = Counter()
    for record in j.obs.gemms or ():
        narrow = all(any(n in t.lower() for n in NARROW) for t in (record.a_dtype, record.b_dtype))
        if record.kind == "fp8_native" and not narrow:
            got = f"{record.kernel} on {record.a_dtype} x {record.b_dtype}"
            return one("fp8.gemms", "FP8 operands in a GEMM called native", got)
        seen[record.kind] += 1
    expected = expected_gemms(j)
    fp8_seen = {kind: seen[kind] for kind in ("fp8_native", "fp8_emulated") if seen[kind]}
    if fp8_seen == dict(expected):
        return ()
    others = {kind: count for kind, count in seen.items() if not kind.startswith("fp8_")}
    return one("fp8.gemms", _counts(expected), f"{_counts(fp8_seen)}; besides {_counts(others)}")


def _counts(counts: Counter[str] | dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "none"


def recipe_seen(j: Judging) -> Sequence[Finding]:
    """The recipe that each FP8 product was given, in order: forward as the program nests them, backward reversed.

    Sees the outer recipe inside, the inner recipe after it, and a recipe read from global state too late
    (pytorch/pytorch#190578)."""
    for name, run in (("eager", j.obs.eager), ("compiled", j.obs.compiled)):
        if run is not None:
            finding = _sequence_finding(j.expects.fp8_linears, name, run)
            if finding:
                return finding
    return ()


def _sequence_finding(linears: tuple[str, ...], name: str, run: RunSeen) -> Sequence[Finding]:
    steps = max(len(run.steps), 1)
    forward, backward = linears * steps, linears[::-1] * steps
    for product, expected in (("fprop", forward), ("dgrad", backward), ("wgrad", backward)):
        seen = tuple(record.recipe for record in run.records if record.product == product)
        if seen != expected:
            differing = (i for i, pair in enumerate(zip(expected, seen, strict=False)) if pair[0] != pair[1])
            position = next(differing, min(len(expected), len(seen)))
            where = f"{name} {product}, from product {position + 1} on"
            return one("fp8.recipe_seen", list(expected), list(seen), where)
    return ()


CHECKS = (
    Check(
        "fp8.gemms",
        "high precision, or emulation, in place of an FP8 kernel",
        lambda j: j.compiled and j.executed,
        gemms,
    ),
    Check(
        "fp8.recipe_seen",
        "an op that was given another region's recipe",
        lambda j: j.executed and j.obs.eager is not None and not j.errors_in("eager"),
        recipe_seen,
    ),
)
