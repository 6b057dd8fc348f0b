"""harness.judge.numerics_program: each check of the program's own tensors alone, with a good and a bad twin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from harness.judge.numerics_bench import Bench
from harness.judge.numerics_program import (
    check_alpha,
    check_eager,
    check_finite,
    check_nonzero,
    check_program,
    check_storage,
)
from harness.observe.types import Observations, RunSeen
from harness.types import Finding
from tests.support import judge_faults as faults
from tests.support.judge_stub import StubProvider, axes_for, observe

CHECKS = (check_finite, check_nonzero, check_storage, check_eager, check_program, check_alpha)


@pytest.fixture(scope="module")
def good() -> Observations:
    return observe(axes_for(nesting="flat"), StubProvider(), StubProvider())


def with_tensors(run: RunSeen | None, output: torch.Tensor | None, grads: Mapping[str, torch.Tensor | None]) -> RunSeen:
    """``run`` with some tensors replaced, or taken away (None) in ``grads``."""
    assert run is not None
    step = run.steps[0]
    merged = {**step.grads, **grads}
    kept = {name: tensor for name, tensor in merged.items() if tensor is not None}
    return replace(run, steps=(replace(step, output=step.output if output is None else output, grads=kept),))


def compiled_with(obs: Observations, **changes: Any) -> Bench:
    """``obs`` with a changed compiled run: ``output=`` or gradients by name with dots as double underscores."""
    output = changes.pop("output", None)
    grads = {name.replace("__", "."): tensor for name, tensor in changes.items()}
    return Bench(replace(obs, compiled=with_tensors(obs.compiled, output, grads)), axes_for(nesting="flat"))


def grad(obs: Observations, name: str) -> torch.Tensor:
    assert obs.compiled is not None
    return obs.compiled.steps[0].grads[name].clone()


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_a_good_run_has_no_finding(good: Observations, check: Callable[[Bench], list[Finding]]) -> None:
    assert check(Bench(good, axes_for(nesting="flat"))) == []


def test_finite_names_tensor_element_and_count(good: Observations) -> None:
    changed = grad(good, "layers.1.weight")
    changed[2, 3] = changed[4, 5] = float("inf")
    (finding,) = check_finite(compiled_with(good, layers__1__weight=changed))
    assert finding.where == "compiled, gradient of layers.1.weight"
    assert finding.got == f"inf at [2, 3] (2 of {changed.numel()} elements)"


def test_finite_accepts_what_the_oracle_has_too(good: Observations) -> None:
    bench = Bench(good, axes_for(nesting="flat"))
    bench.views[0].oracle.steps[0].output[0, 0] = float("nan")
    assert check_finite(bench) == []
    assert check_program(bench)  # but equal to NaN nothing is


@pytest.mark.parametrize(
    "zeroed",
    [(slice(None), slice(None)), (3, slice(None)), (slice(None), 7), (slice(16, 32), slice(32, 64))],
    ids=["all", "row", "column", "block"],
)
def test_nonzero_sees_what_never_arrived(good: Observations, zeroed: tuple[Any, ...]) -> None:
    changed = grad(good, "layers.0.weight")
    changed[zeroed] = 0
    (finding,) = check_nonzero(compiled_with(good, layers__0__weight=changed))
    assert finding.where == "compiled, gradient of layers.0.weight"
    assert "not zero" in finding.expected


def test_nonzero_accepts_zeros_where_the_oracle_is_near_zero_and_a_stray_one(good: Observations) -> None:
    changed = grad(good, "layers.0.weight")
    changed[changed.abs() < 0.01] = 0
    changed[5, 5] = 0
    assert check_nonzero(compiled_with(good, layers__0__weight=changed)) == []


def test_storage_sees_a_tensor_compared_with_itself(good: Observations) -> None:
    assert good.eager is not None
    shared = good.eager.steps[0].grads["layers.0.weight"]
    (finding,) = check_storage(compiled_with(good, layers__0__weight=shared))
    assert finding.got == "one storage for eager and compiled"
    (view,) = check_storage(compiled_with(good, layers__0__weight=shared.view(-1)[:4]))
    assert view.check == "numerics.storage"


def held_in(good: Observations, *storages: torch.Tensor, stated: bool = True) -> Bench:
    """``good`` with as many eager steps as ``storages``, each returned in one of them."""
    assert good.eager is not None
    assert good.expects is not None
    steps = tuple(replace(good.eager.steps[0], returned=storage) for storage in storages)
    eager = replace(good.eager, steps=steps)
    obs = replace(good, eager=eager, eager_again=None, expects=replace(good.expects, stated=stated))
    return Bench(obs, axes_for(nesting="flat"))


def test_storage_sees_a_result_that_the_next_call_overwrites(good: Observations) -> None:
    workspace = torch.zeros(4, 4)
    (finding,) = check_storage(held_in(good, workspace, workspace.view(-1)[4:]))
    assert finding.got == "one storage for those of eager step 0 and eager step 1"


def test_storage_accepts_results_that_lie_apart_and_a_buffer_of_a_users_own_module(good: Observations) -> None:
    workspace = torch.zeros(4, 4)
    assert check_storage(held_in(good, workspace, workspace.clone())) == []
    assert check_storage(held_in(good, workspace, workspace, stated=False)) == []


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_eager_means_bits_where_the_graph_is_the_same_operations(good: Observations, backend: str) -> None:
    changed = grad(good, "input0")
    changed[1, 1] = torch.nextafter(changed[1, 1], torch.tensor(9.0).bfloat16())
    bench = compiled_with(good, input0=changed)
    bench.axes = replace(bench.axes, backend=backend)
    (finding,) = check_eager(bench)
    assert finding.expected == "the bits of eager"
    assert finding.got.startswith(f"1 of {changed.numel()} elements differ, by up to ")


def test_eager_under_inductor_is_a_bound_and_says_by_what_factor(good: Observations) -> None:
    near, far = grad(good, "input0"), grad(good, "input0")
    near[1, 1] = torch.nextafter(near[1, 1], torch.tensor(9.0).bfloat16())
    far[1, 1] += 1.0
    bench = compiled_with(good, input0=near)
    bench.axes = replace(bench.axes, backend="inductor")
    assert check_eager(bench) == []
    assert bench.margins["numerics.eager"].ratio < 0.5
    bench = compiled_with(good, input0=far)
    bench.axes = replace(bench.axes, backend="inductor")
    (finding,) = check_eager(bench)
    assert finding.expected.startswith("eager within ")
    assert "(1 of 32768 outside, by up to" in finding.got


def test_eager_says_with_whom_the_oracle_sides(good: Observations) -> None:
    wrong = grad(good, "input0") * 2
    (finding,) = check_eager(compiled_with(good, input0=wrong))
    assert finding.got.endswith("; the oracle sides with eager")
    eager = with_tensors(good.eager, None, {"input0": wrong})
    (finding,) = check_eager(Bench(replace(good, eager=eager), axes_for(nesting="flat")))
    assert finding.got.endswith("; the oracle sides with compiled")


def test_eager_sees_missing_tensors_shapes_and_dtypes(good: Observations) -> None:
    (missing,) = check_eager(compiled_with(good, layers__0__bias=None))
    assert (missing.expected, missing.got) == ("a tensor, as in eager", "none")
    (shape,) = check_eager(compiled_with(good, input0=grad(good, "input0").t().contiguous()))
    assert "(256, 128)" in shape.got
    (dtype,) = check_eager(compiled_with(good, input0=grad(good, "input0").float()))
    assert "torch.float32" in dtype.got


def test_program_sees_a_factor_a_transpose_a_missing_and_a_superfluous_gradient(good: Observations) -> None:
    (finding,) = check_program(compiled_with(good, input0=grad(good, "input0") * 2))
    assert "the whole tensor is 2 times the oracle's" in finding.got
    (finding,) = check_program(compiled_with(good, input0=grad(good, "input0").t().contiguous()))
    assert (finding.expected, finding.got) == ("shape (128, 256)", "shape (256, 128)")
    (finding,) = check_program(compiled_with(good, layers__0__bias=None))
    assert (finding.expected, finding.got) == ("a gradient", "none")
    (finding,) = check_program(compiled_with(good, layers__9__bias=torch.ones(3)))
    assert (finding.expected, finding.got) == ("no gradient", "one")


def test_program_sees_a_single_element(good: Observations) -> None:
    changed = grad(good, "layers.0.bias")
    changed[17] *= 1.25
    bench = compiled_with(good, layers__0__bias=changed)
    (finding,) = check_program(bench)
    assert "at [17] (1 of 128 outside" in finding.got
    assert bench.margins["numerics.program"].ratio >= 2


def test_alpha_findings_are_one_per_tensor_with_the_first_culprit() -> None:
    cell = axes_for("float8_rowwise_scaling", nesting="nested")
    bench = Bench(observe(cell, faults.OneLayerInBf16()), cell)
    findings = check_alpha(bench)
    assert len({f.where.rsplit(", ", 1)[0] for f in findings}) == len(findings)
    assert findings[0].where == "eager, output, layers.1 fprop"
    assert findings[0].expected.startswith("alpha 1 ± ")
