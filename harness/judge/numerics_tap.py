"""Checks of the tap's records: scales and codes against the oracle, kernels against exact products, the tap against
the program itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from harness.judge.bounds import accumulation_bound, accumulation_excess, accumulator_of_product
from harness.judge.compare import first_index, same_values, within
from harness.judge.formats import FORMATS, Precision, half_spacing, precision_of, round_to
from harness.judge.formats import decode as decode_elements
from harness.judge.numerics_bench import Bench
from harness.judge.numerics_views import Pair, View, describe
from harness.judge.oracle import OracleOperand, decode, quantize
from harness.judge.oracle_engine import DGRAD, FPROP, WGRAD
from harness.judge.oracle_run import OracleStep
from harness.judge.oracle_sites import ProductRun, Site
from harness.judge.scale_product import scale_product_bound
from harness.observe.types import Batch, StepTensors
from harness.providers.protocol import Operand, TapRecord
from harness.types import Finding


def _operands(pair: Pair) -> Iterator[tuple[str, Operand, OracleOperand, float | None]]:
    """Both operands: "A"/"B" with role, as recorded, as the oracle quantised its own, encode scale (delayed only)."""
    product, record = pair.product, pair.record
    yield f"A ({record.a.role})", record.a, product.a, product.encode_scales[0]
    yield f"B ({record.b.role})", record.b, product.b, product.encode_scales[1]


def expected_operand(pair: Pair, seen: Operand, own: OracleOperand, encode_scale: float | None) -> OracleOperand:
    """The oracle's quantisation of the recorded source, whichever tensor that is."""
    if seen.source.shape == own.source.shape and torch.equal(seen.source.to(own.source), own.source):
        return own
    return quantize(seen.source, pair.product.recipe, own.role, tensor_scale=encode_scale)


@dataclass(frozen=True)
class Unequal:
    """What of an operand is not as the oracle has it, in words, and how many values that are."""

    expected: str
    got: str
    count: int = 1


def _fresh(bench: Bench) -> Iterator[tuple[View, Pair]]:
    for view in bench.views:
        for pair in view.pairs:
            if pair.fresh:
                yield view, pair


def _operand_findings(
    bench: Bench,
    check: str,
    faults: Callable[[Operand, OracleOperand], Iterator[Unequal]],
    values: Callable[[Operand], torch.Tensor],
) -> list[Finding]:
    """Findings of ``faults`` for each operand beside the oracle's quantisation of it; ``values`` are those that it
    compares."""
    findings = []
    for view, pair in _fresh(bench):
        for name, seen, own, encode_scale in _operands(pair):
            where = f"{pair.place(view.name)}, operand {name}"
            expected = expected_operand(pair, seen, own, encode_scale)
            found = list(faults(seen, expected))
            bench.compared(check, "values", values(seen).numel(), sum(one.count for one in found))
            findings += [Finding(check, one.expected, one.got, where) for one in found]
    return findings


def check_scales(bench: Bench) -> list[Finding]:
    """Role, block and every scale of each operand equal to the oracle's quantisation of that operand's source."""
    return _operand_findings(bench, "numerics.scales", _scale_faults, lambda operand: operand.scale)


def _scale_faults(seen: Operand, expected: OracleOperand) -> Iterator[Unequal]:
    if seen.role != expected.role:
        yield Unequal(f"role {expected.role}", f"role {seen.role}")
    if tuple(seen.block) != tuple(expected.block) or tuple(seen.scale.shape) != tuple(expected.scale.shape):
        shapes = tuple(expected.scale.shape), tuple(seen.scale.shape)
        yield Unequal(
            f"blocks of {tuple(expected.block)}, scales of shape {shapes[0]}",
            f"blocks of {tuple(seen.block)}, scales of shape {shapes[1]}",
            seen.scale.numel(),
        )
        return
    if (seen.global_scale is None) != (expected.global_scale is None):
        names = ("no global scale", "a global scale")
        yield Unequal(names[expected.global_scale is not None], names[seen.global_scale is not None])
    elif seen.global_scale is not None and expected.global_scale is not None:
        yield from _unequal(seen.global_scale.reshape(-1), expected.global_scale.reshape(-1), "global scale")
    yield from _unequal(seen.scale, expected.scale, "scale")


def _unequal(seen: torch.Tensor, expected: torch.Tensor, what: str) -> Iterator[Unequal]:
    if seen.shape != expected.shape:
        yield Unequal(f"{what} of shape {tuple(expected.shape)}", f"shape {tuple(seen.shape)}", seen.numel())
        return
    bad = ~same_values(seen, expected)
    if bool(bad.any()):
        index = first_index(bad)
        got, want = float(seen[index]), float(expected[index])
        factor = f", {got / want:.6g} times as large" if want else ""
        blocks = f" ({int(bad.sum())} of {bad.numel()} blocks)" if bad.numel() > 1 else ""
        yield Unequal(f"{what} {want!r} in block {list(index)}", f"{got!r}{factor}{blocks}", int(bad.sum()))


def check_codes(bench: Bench) -> list[Finding]:
    """Every FP8 (or FP4) code equal to the oracle's; two codes of NaN are equal."""
    return _operand_findings(bench, "numerics.codes", _code_faults, lambda operand: operand.codes)


def _code_faults(seen: Operand, expected: OracleOperand) -> Iterator[Unequal]:
    count = seen.codes.numel()
    if seen.format != expected.format:
        yield Unequal(f"{expected.format} codes", f"{seen.format} codes", count)
        return
    if seen.codes.shape != expected.codes.shape or seen.codes.dtype != torch.uint8:
        shape = f"uint8 codes of shape {tuple(expected.codes.shape)}"
        yield Unequal(shape, f"{seen.codes.dtype} {tuple(seen.codes.shape)}", count)
        return
    if torch.equal(seen.codes, expected.codes):
        return
    got, want = (decode_elements(codes, FORMATS[expected.format]) for codes in (seen.codes, expected.codes))
    bad = (seen.codes != expected.codes) & ~(torch.isnan(got) & torch.isnan(want))
    if bool(bad.any()):
        index = first_index(bad)
        block = [index[0] // expected.block[0], index[1] // expected.block[1]]
        codes = int(expected.codes[index]), int(seen.codes[index])
        yield Unequal(
            f"code 0x{codes[0]:02x} ({want[index].item():g}) at {list(index)}, block {block}",
            f"0x{codes[1]:02x} ({got[index].item():g}); {int(bad.sum())} of {bad.numel()} codes differ"
            + _direction(got[bad].abs(), want[bad].abs()),
            int(bad.sum()),
        )


def _direction(got: torch.Tensor, want: torch.Tensor) -> str:
    """Words for a one-sided difference of magnitudes."""
    if got.numel() > 1 and bool((got < want).all()):
        return ", all towards zero"
    if got.numel() > 1 and bool((got > want).all()):
        return ", all away from zero"
    return ""


def check_kernel(bench: Bench) -> list[Finding]:
    """Each recorded product against the exact product of the very codes and scales that it was given.

    What one rounding of the output can't explain must stay within the accumulator's bound (harness.judge.bounds), which
    is wider for a product whose kernel was asked for fast accumulation, and for that product alone, and where the
    product of two decode scales is no normal number of float32 (harness.judge.scale_product).
    """
    findings = []
    for view, pair in _fresh(bench):
        where = pair.place(view.name)
        a, b = _given(pair.record.a, pair.product.a), _given(pair.record.b, pair.product.b)
        if a is None or b is None:
            continue  # shapes that don't fit are numerics.scales' and numerics.codes' finding
        output, precision = pair.record.output.detach().to(torch.float64), precision_of(pair.record.output.dtype)
        if output.shape != (a.shape[0], b.shape[0]) or a.shape[1] != b.shape[1]:
            expected = f"an output of shape {(a.shape[0], b.shape[0])}"
            findings.append(Finding("numerics.kernel", expected, f"shape {tuple(output.shape)}", where))
            continue
        own = a is pair.product.a.values and b is pair.product.b.values
        exact = pair.product.quantised if own else a @ b.t()
        excess = accumulation_excess(output, exact, precision)
        accumulator = accumulator_of_product(bench.obs.kernels, a.shape[1], pair.record.fast_accumulation)
        bound = accumulation_bound(a.abs() @ b.abs().t(), a.shape[1], accumulator, precision)
        operands = (pair.product.a, pair.product.b) if own else (pair.record.a, pair.record.b)
        if (scales := scale_product_bound(*operands)) is not None:
            bound = bound + scales
        worst = within(excess, bound)
        fast = ", fast accumulation" if pair.record.fast_accumulation else ""
        bench.meet("numerics.kernel", worst.ratio, where, f"{pair.record.product}{fast}")
        if not worst.ok:
            want = f"{exact[worst.index].item():.6g} within {worst.bound:.3g} ({accumulator.name})"
            got = f"{output[worst.index].item():.6g}, off by {worst}"
            findings.append(Finding("numerics.kernel", want, got, where))
    return findings


def _given(seen: Operand, own: OracleOperand) -> torch.Tensor | None:
    """float64 values of an operand as it was recorded; None where codes, scales and blocks don't fit together."""
    if _same_quantisation(seen, own):
        return own.values
    rows, columns = seen.codes.shape if seen.codes.dim() == 2 else (0, 0)
    blocks = (math.ceil(rows / max(seen.block[0], 1)), math.ceil(columns / max(seen.block[1], 1)))
    if tuple(seen.scale.shape) != blocks or seen.format not in FORMATS or seen.codes.dtype != torch.uint8:
        return None
    return decode(seen.codes, seen.scale, FORMATS[seen.format], (seen.block[0], seen.block[1]), seen.global_scale)


def _same_quantisation(seen: Operand, own: OracleOperand) -> bool:
    if seen.format != own.format or tuple(seen.block) != own.block or seen.scale.shape != own.scale.shape:
        return False
    if (seen.global_scale is None) != (own.global_scale is None):
        return False
    scales = [(seen.scale, own.scale)]
    if seen.global_scale is not None and own.global_scale is not None:
        scales.append((seen.global_scale.reshape(-1), own.global_scale.reshape(-1)))
    same_scales = all(torch.equal(theirs.to(mine), mine) for theirs, mine in scales)
    return same_scales and torch.equal(seen.codes, own.codes)


def check_tap(bench: Bench) -> list[Finding]:
    """The tap reports the program that ran: one record per product, sources and results that are the program's tensors.

    Without this a tap could report a plan that nothing executed, and every other check of its records would hold.
    """
    findings: list[Finding] = []
    for view in bench.views:
        for step, seen, own in view.steps():
            place = f"{view.name}, step {step}" if step else view.name
            if not view.shared:
                findings += _count_faults(bench, place, own)
                findings += _source_faults(bench, place, own, bench.obs.batches[step])
            records = {id(p.product): p.record for p in view.pairs if p.step == step}
            findings += _tie_faults(bench, place, seen, own, records)
    return findings


def _count_faults(bench: Bench, place: str, own: OracleStep) -> Iterator[Finding]:
    lacking = sum(product.record is None for product in own.products)
    bench.compared("numerics.tap", "one record for each product", len(own.products), lacking)
    for product in own.products:
        if product.record is None:
            yield Finding("numerics.tap", "one record", "none", f"{place}, {product.label}")
    for record in own.left_over:
        yield Finding("numerics.tap", "no more products", f"{record.product} under {record.recipe}", place)
    for record in own.unknown:
        yield Finding("numerics.tap", "a layer of the program", f"weight_ptr {record.weight_ptr:#x}", place)


def _source_faults(bench: Bench, place: str, own: OracleStep, batch: Batch) -> Iterator[Finding]:
    for product in own.products:
        where = f"{place}, {product.label}"
        for role, ratio in product.met:
            bench.meet("numerics.tap", ratio, f"{where}, source of {role}", f"source of {role}")
        for mismatch in product.mismatches:
            got = mismatch.reason if mismatch.worst is None else f"{mismatch.reason}: off by {mismatch.worst}"
            place_of = f"{where}, source of {mismatch.operand}"
            yield Finding("numerics.tap", "the program's tensor as the oracle has it", got, place_of)
        record = product.record
        if record is None:
            continue
        for seen, given, what in _exact_sources(own.sites[product.site], product.product, record, batch):
            given = given.to(seen.dtype)  # a program may cast what it gets, and what it returns
            same = seen.shape == given.shape and bool(same_values(seen.to(given.device), given).all())
            bench.compared("numerics.tap", "sources that are the program's own", differing=int(not same))
            if not same:
                role = record.a.role if seen is record.a.source else record.b.role
                yield Finding("numerics.tap", f"the bits of the {what}", "others", f"{where}, source of {role}")


def _exact_sources(
    site: Site, product: str, record: TapRecord, batch: Batch
) -> Iterator[tuple[torch.Tensor, torch.Tensor, str]]:
    """Recorded sources that must be parameters or batch tensors, bit for bit: (source, tensor, what it is)."""
    if product in (FPROP, DGRAD):  # the oracle's own weight operand: the parameter of this step, or what was kept of it
        yield record.b.source, site.products[product].b.source, "weight parameter"
    if product in (FPROP, WGRAD):
        for tensor in batch.inputs:
            if tensor.is_floating_point() and _is(site.x, tensor):
                flat = tensor.reshape(site.x.shape)
                yield (
                    (record.a.source, flat, "batch's input")
                    if product == FPROP
                    else (
                        record.b.source,
                        flat.t(),
                        "batch's input",
                    )
                )
    if product in (DGRAD, WGRAD) and site.grad_output is not None and _is(site.grad_output, batch.grad_output):
        flat = batch.grad_output.reshape(site.grad_output.shape)
        yield record.a.source, flat if product == DGRAD else flat.t(), "batch's output gradient"


def _is(own: torch.Tensor, tensor: torch.Tensor) -> bool:
    """True when the oracle's (rows, columns) tensor is ``tensor``, value for value."""
    return own.numel() == tensor.numel() and torch.equal(own, tensor.detach().to(own).reshape(own.shape))


def _tie_faults(
    bench: Bench, place: str, seen: StepTensors, own: OracleStep, records: dict[int, TapRecord]
) -> Iterator[Finding]:
    """Where a tensor of the oracle's program is the result of one product, the run's tensor is that record's output."""
    for site in own.sites:
        forward = site.products.get(FPROP)
        if forward is not None and id(forward) in records and _is(site.y, own.output):
            yield from _output_fault(bench, place, seen.output, site, records[id(forward)])
        for name, product in _gradient_products(site, own):
            tied = name in seen.grads and _is(round_to(product.quantised, bench.precision), own.grads[name])
            record = records.get(id(product))
            if not tied or record is None:
                continue
            same = _same_result(seen.grads[name], record.output, bench.precision)
            bench.compared("numerics.tap", "gradient = recorded output", differing=int(not same))
            if not same:
                expected = f"the recorded output of {product.label}"
                yield Finding("numerics.tap", expected, "another tensor", f"{place}, {describe(name)}")


def _gradient_products(site: Site, own: OracleStep) -> Iterator[tuple[str, ProductRun]]:
    """Gradients that may be the result of one of the site's products, by name."""
    dgrad, wgrad, weight = site.products.get(DGRAD), site.products.get(WGRAD), site.parameter("weight")
    if dgrad is not None:
        yield from ((name, dgrad) for name in own.grads if name.startswith("input"))
    if wgrad is not None and weight in own.grads:
        yield weight, wgrad


def _same_result(grad: torch.Tensor, output: torch.Tensor, precision: Precision) -> bool:
    """True when a gradient is a kernel's output, rounded to the program's dtype."""
    rounded = round_to(output.detach().to(torch.float64), precision)
    return grad.numel() == rounded.numel() and bool(same_values(grad.reshape(rounded.shape), rounded).all())


def _output_fault(bench: Bench, place: str, output: torch.Tensor, site: Site, record: TapRecord) -> Iterator[Finding]:
    """Output = recorded output + bias: equal up to the one rounding that a fused bias saves."""
    product = record.output.detach().to(site.y)
    if product.numel() != output.numel() or product.shape != site.y.shape:
        return  # numerics.kernel and numerics.program report shapes
    bias = site.bias
    wanted = product if bias is None else product + bias.to(product)
    value = output.detach().to(wanted).reshape(wanted.shape)
    allowed = half_spacing(wanted, bench.precision)
    if bias is not None:
        allowed = 2 * allowed + half_spacing(product, bench.precision)
    worst = within((value - wanted).abs(), allowed)
    bench.meet("numerics.tap", worst.ratio, f"{place}, output", "output = recorded output + bias")
    if not worst.ok:
        expected = f"the recorded output of {site.name} fprop{' plus bias' if bias is not None else ''}"
        yield Finding("numerics.tap", expected, f"off by {worst}", f"{place}, output")
