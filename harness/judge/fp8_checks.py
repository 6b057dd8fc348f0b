"""Did FP8 happen, and with which recipe? Evidence that does not come from numerics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.judge.check import Check, Judging, one
from harness.judge.compare import same_bits
from harness.observe.types import ProductSeen, RunSeen
from harness.providers.protocol import TapRecord
from harness.types import Evidence, Finding

NARROW = ("float8", "float4")
PRODUCTS = ("fprop", "recompute", "dgrad", "wgrad")


def expected_gemms(j: Judging) -> Counter[str]:
    """FP8 GEMMs of the profiled step by kind, from the case's products and the provider's support of each recipe."""
    counts: Counter[str] = Counter()
    for label in j.expects.step(j.expects.steps, compiled=True).products:  # the step after the judged ones is profiled
        counts[_kernel_kind(j, "fp8_native" if _level(j, label) == "native" else "fp8_emulated")] += 1
    return counts


def _kernel_kind(j: Judging, kind: str) -> str:
    """In a rehearsal one kind of FP8 GEMM: which kernels the CPU has says nothing of the named architecture."""
    return "fp8_rehearsed" if j.obs.evidence is Evidence.REHEARSED and kind.startswith("fp8_") else kind


def _level(j: Judging, label: str) -> str:
    """The provider's level of a recipe: of this label, else of the same recipe with other fields."""
    name = label.partition("(")[0]
    same = (known for known in j.obs.support if known.partition("(")[0] == name)
    return j.obs.support.get(label if label in j.obs.support else next(same, ""), ("native", "", ""))[0]


def gemms(j: Judging) -> Sequence[Finding]:
    """GEMMs that the profiler saw with FP8 operands = those the case states, and no other GEMM in the operators that
    run them. Sees bf16 in place of FP8 or beside it, FP8 in forward alone, and emulation that passes for native; a GEMM
    of unknown kind never counts as FP8."""
    seen: Counter[str] = Counter()
    for record in j.obs.gemms or ():
        narrow = all(any(n in t.lower() for n in NARROW) for t in (record.a_dtype, record.b_dtype))
        if record.kind == "fp8_native" and not narrow:
            got = f"{record.kernel} on {record.a_dtype} x {record.b_dtype}"
            return one("fp8.gemms", "FP8 operands in a GEMM called native", got)
        seen[_kernel_kind(j, record.kind)] += 1
    fp8_seen = {kind: count for kind, count in seen.items() if kind.startswith("fp8_")}
    others = {kind: count for kind, count in seen.items() if not kind.startswith("fp8_")}
    got = f"{_counts(fp8_seen)}; besides {_counts(others)}"
    if not j.expects.stated and not fp8_seen:
        return one("fp8.gemms", "at least one FP8 GEMM", got)
    expected = expected_gemms(j) if j.expects.stated else Counter(fp8_seen)
    if fp8_seen != dict(expected):
        return one("fp8.gemms", _counts(expected), got)
    beside = Counter(f"{record.kind} in {record.inside}" for record in j.obs.gemms or () if record.inside)
    return one("fp8.gemms", "no GEMM beside the FP8 product of an operator", _counts(beside)) if beside else ()


def _counts(counts: Counter[str] | dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "none"


def recipe_seen(j: Judging) -> Sequence[Finding]:
    """The recipe that each FP8 product was given, in order: forward as the program nests them, backward reversed,
    recomputed forwards apart.

    No other product waits for a wgrad, so Inductor runs those of a step in an order of its own. They are counted there,
    and ``numerics.scales`` says which layer had which recipe.

    Sees the outer recipe inside, the inner recipe after it, a recipe read from global state too late
    (pytorch/pytorch#190578), and a recompute in another region's recipe or in none (NVIDIA/Megatron-LM#7538)."""
    if not j.expects.stated:
        return _as_in_eager(j)
    for name, run in (("eager", j.obs.eager), ("compiled", j.obs.compiled)):
        if run is not None:
            finding = _sequence_finding(j, name, run)
            if finding:
                return finding
    return ()


def recipe_traced(j: Judging) -> Sequence[Finding]:
    """:func:`recipe_seen` of a cell that is only traced: the recipes that the operators of its graphs were given, in
    forward, backward and recompute. A layer whose operator is missing, or a backward without one, shows too."""
    if not j.expects.stated:
        return ()
    stated = [j.expects.step(index, compiled=True) for index in range(len(j.obs.traced))]
    for product in PRODUCTS:
        by_step = [step.of(product) for step in stated]
        seen = tuple(p.recipe for step in j.obs.traced for p in step.products or () if _kind(p) == product)
        findings = _labels_finding(by_step, seen, f"traced {product}", is_ordered=not _is_unordered(j, "", product))
        if findings:
            return findings
    return ()


def _as_in_eager(j: Judging) -> Sequence[Finding]:
    """Where nobody states the recipes: those of the compiled products are those of the eager ones, in order.

    But for products that AOT may merge: an eager one on the very operands of an earlier one needn't run again."""
    eager, compiled = j.obs.eager, j.obs.compiled
    for product in ("fprop", "dgrad", "wgrad") if eager and compiled else ():
        expected, seen = (_recipes(run, product) for run in (eager, compiled))
        if seen != expected and not (j.axes.backend != "eager" and _is_merged(eager, product, seen)):
            return one("fp8.recipe_seen", list(expected), list(seen), f"compiled {product}, against eager")
    return ()


def _is_merged(run: RunSeen | None, product: str, seen: tuple[str, ...]) -> bool:
    """Whether the products ``seen`` are those of ``run``, in order, but for some that repeat an earlier one."""
    return _is_within(_merged(run, product), seen) and _is_within(seen, _recipes(run, product))


def _is_within(few: tuple[str, ...], many: tuple[str, ...]) -> bool:
    rest = iter(many)
    return all(label in rest for label in few)


def _merged(run: RunSeen | None, product: str) -> tuple[str, ...]:
    """The recipes of one kind of product, those left out that repeat an earlier one of their step bit for bit."""
    records = run.records if run else ()
    owners = (run.steps_of_records if run else ()) or (0,) * len(records)
    kept: list[tuple[int, TapRecord]] = []
    for owner, record in zip(owners, records, strict=True):
        repeats = any(at == owner and _same_product(record, other) for at, other in kept)
        if _kind(record) == product and not repeats:
            kept.append((owner, record))
    return tuple(record.recipe for _, record in kept)


def _same_product(one: TapRecord, other: TapRecord) -> bool:
    same_call = (one.recipe, one.weight_ptr) == (other.recipe, other.weight_ptr)
    return same_call and all(same_bits(a.source, b.source) for a, b in ((one.a, other.a), (one.b, other.b)))


def _recipes(run: RunSeen | None, product: str) -> tuple[str, ...]:
    return tuple(record.recipe for record in (run.records if run else ()) if _kind(record) == product)


def observed(j: Judging) -> str:
    """What a program that states nothing turned out to do, for the result's notes; empty where there is nothing."""
    if j.expects.stated or j.obs.census is None or j.raises is not None:
        return ""
    census, run = j.obs.census, j.obs.compiled
    steps = len(run.steps) if run else 1
    recipes = Counter(_recipes(run, "fprop"))
    products = ", ".join(f"{count / steps:g} x {label}" for label, count in recipes.items()) or "none traced"
    gemms = Counter(record.kind for record in j.obs.gemms or ())
    graphs = f"{census.graphs} forward and {census.backward_graphs} backward graph(s)"
    dropped = census.dropped_calls
    merged = f"; AOT merged equal FP8 calls or dropped unused ones: {dropped}" if dropped else ""
    bare = run is not None and not any(step.grads for step in run.steps)
    forward_only = "; no gradients, so nothing of a backward was judged" if bare else ""
    parts = f"{graphs}; forward products of a step: {products}; GEMMs: {_counts(gemms)}{merged}{forward_only}"
    return f"not stated, only observed: {parts}"


def _sequence_finding(j: Judging, name: str, run: RunSeen) -> Sequence[Finding]:
    stated = [j.expects.step(index, compiled=name == "compiled") for index in range(max(len(run.steps), 1))]
    for product in PRODUCTS:
        by_step = [step.of(product) for step in stated]
        ordered = not _is_unordered(j, name, product)
        findings = _labels_finding(by_step, _recipes(run, product), f"{name} {product}", is_ordered=ordered)
        if findings:
            return findings
    return ()


def _labels_finding(
    by_step: Sequence[tuple[str, ...]], seen: tuple[str, ...], where: str, *, is_ordered: bool
) -> Sequence[Finding]:
    """The recipes of one kind of product against those that are stated for each step."""
    expected = tuple(label for labels in by_step for label in labels)
    if len(seen) == len(expected) and not is_ordered:
        seen = _as_stated(by_step, seen)
    if seen == expected:
        return ()
    differing = (i for i, pair in enumerate(zip(expected, seen, strict=False)) if pair[0] != pair[1])
    position = next(differing, min(len(expected), len(seen)))
    return one("fp8.recipe_seen", list(expected), list(seen), f"{where}, from product {position + 1} on")


def _is_unordered(j: Judging, name: str, product: str) -> bool:
    """True where nobody promises the order within a step: of Inductor's wgrads, which nothing waits for, and of a
    backward whose forward ran in several threads, since autograd numbers its nodes thread by thread."""
    if product in ("dgrad", "wgrad") and not j.expects.ordered_backward:
        return True
    return name == "compiled" and product == "wgrad" and j.axes.backend == "inductor"


def _as_stated(by_step: Sequence[tuple[str, ...]], seen: tuple[str, ...]) -> tuple[str, ...]:
    """``seen`` with each step's products in the stated order, where they are the same ones."""
    ordered: tuple[str, ...] = ()
    for labels in by_step:
        part = seen[len(ordered) : len(ordered) + len(labels)]
        ordered += labels if sorted(part) == sorted(labels) else part
    return ordered


def _kind(record: TapRecord | ProductSeen) -> str:
    return "recompute" if record.phase == "recompute" and record.product == "fprop" else record.product


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
        lambda j: j.executed and bool(j.obs.eager or j.obs.eager_errors) and not j.errors_in("eager"),
        recipe_seen,
    ),
    Check(
        "fp8.recipe_seen",
        "an operator of a traced graph that was given another region's recipe",
        lambda j: j.compiled and any(step.products is not None for step in j.obs.traced),
        recipe_traced,
    ),
)
