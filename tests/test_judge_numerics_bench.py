"""harness.judge.numerics_bench: which oracle run stands beside which judged run, and what is looked at once only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from harness.judge.numerics import judge_numerics
from harness.judge.numerics_bench import Bench, on_cpu
from harness.judge.numerics_program import check_eager
from harness.observe.types import RunSeen
from tests.support import judge_faults as faults
from tests.support.judge_stub import StubProvider, axes_for, observe


class Noisy(StubProvider):
    """Another order of summation: results differ in the last bits, and so do the sources of the next layer."""

    def multiply(self, a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        exact = a.double() @ b.double().t()
        return (exact * (1 + 2.0**-20) + 2.0**-18 * a.abs().double() @ b.abs().double().t() * 1e-2).to(dtype)


def bench(eager: StubProvider, compiled: StubProvider | None, **axes: Any) -> Bench:
    cell = axes_for(nesting="nested", **axes)
    return Bench(observe(cell, eager, compiled), cell)


def test_equal_sources_share_one_oracle_run_and_are_judged_once() -> None:
    b = bench(StubProvider(), StubProvider())
    eager, compiled = b.views
    assert compiled.shared
    assert compiled.oracle is eager.oracle
    assert len(compiled.pairs) == len(eager.pairs) == 9
    assert all(pair.fresh for pair in eager.pairs)
    assert not any(pair.fresh for pair in compiled.pairs)
    assert b.obs.compiled is not None
    own = {id(record) for record in b.obs.compiled.records}
    assert all(id(pair.record) in own for pair in compiled.pairs)
    assert {view.name for view, *_ in b.fresh_tensors()} == {"eager"}


def test_other_sources_get_an_oracle_run_of_their_own_and_both_pass_within_bounds() -> None:
    b = bench(StubProvider(), Noisy(), backend="inductor")
    eager, compiled = b.views
    assert not compiled.shared
    assert compiled.oracle is not eager.oracle
    verdict = judge_numerics(b.raw, b.axes)
    assert verdict.findings == ()
    assert 0 < verdict.summary["margins"]["numerics.eager"]["ratio"] < 0.5


def test_a_compiled_run_with_other_records_is_judged_by_itself() -> None:
    b = bench(StubProvider(), faults.ProductMissing())
    assert not b.views[1].shared
    b = bench(StubProvider(), faults.RoundTowardZero())
    assert not b.views[1].shared  # layer 1 sees other inputs


def test_a_fault_in_the_compiled_run_alone_is_found_in_the_shared_view() -> None:
    b = bench(StubProvider(), faults.ReportsWrongScale())
    assert b.views[1].shared
    assert all(pair.fresh for pair in b.views[1].pairs)
    verdict = judge_numerics(b.raw, b.axes)
    assert {f.check for f in verdict.findings} == {"numerics.scales", "numerics.kernel"}
    assert all("compiled" in f.where for f in verdict.findings)


def test_without_an_eager_run_the_compiled_one_stands_alone() -> None:
    b = bench(StubProvider(), StubProvider())
    alone = Bench(replace(b.raw, eager=None), b.axes)
    assert [view.name for view in alone.views] == ["compiled"]
    assert judge_numerics(alone.raw, alone.axes).findings == ()


def test_nondeterministic_tensors_are_named_and_noted() -> None:
    b = bench(StubProvider(), StubProvider(), backend="aot_eager")
    assert b.nondeterministic == frozenset()
    assert b.raw.eager_again is not None
    step = b.raw.eager_again.steps[0]
    grads = dict(step.grads)
    grads["layers.0.weight"] = torch.nextafter(grads["layers.0.weight"], torch.tensor(99.0).bfloat16())
    again = replace(b.raw.eager_again, steps=(replace(step, grads=grads),))
    cell = Bench(replace(b.raw, eager_again=again), b.axes)
    assert cell.nondeterministic == {"layers.0.weight"}
    verdict = judge_numerics(cell.raw, cell.axes)
    assert verdict.findings == ()
    assert verdict.notes == ("nondeterministic: layers.0.weight differ between two eager runs",)


def test_a_nondeterministic_tensor_is_held_to_bounds_and_the_others_to_bits() -> None:
    b = bench(StubProvider(), StubProvider())
    nudge = {name: nudged(b.raw.compiled, name) for name in ("layers.0.weight", "layers.1.weight")}
    loose = replace(b.raw, eager_again=nudged(b.raw.eager_again, "layers.0.weight"))
    assert check_eager(Bench(replace(loose, compiled=nudge["layers.0.weight"]), b.axes)) == []
    (finding,) = check_eager(Bench(replace(loose, compiled=nudge["layers.1.weight"]), b.axes))
    assert finding.where == "compiled, gradient of layers.1.weight"


def nudged(run: RunSeen | None, name: str) -> RunSeen:
    """``run`` with one gradient one bfloat16 step away, in the tap's record of it too."""
    assert run is not None
    step = run.steps[0]
    moved = torch.nextafter(step.grads[name], torch.tensor(99.0).bfloat16())
    pointers = {layer: pointer for pointer, layer in run.layers.items()}
    records = tuple(
        replace(r, output=moved.clone())
        if r.product == "wgrad" and r.weight_ptr == pointers[name.rpartition(".")[0]]
        else r
        for r in run.records
    )
    return replace(run, steps=(replace(step, grads={**step.grads, name: moved}),), records=records)


def test_on_cpu_keeps_what_is_there_already() -> None:
    b = bench(StubProvider(), None)
    assert on_cpu(b.raw) is b.raw
    meta = torch.empty(2, device="meta")
    assert on_cpu((1, "a", None)) == (1, "a", None)
    moved = {"kept": torch.ones(1), "tuple": (1, torch.zeros(2))}
    assert on_cpu(moved) is moved
    assert meta.device.type == "meta"
