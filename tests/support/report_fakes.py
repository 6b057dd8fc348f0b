"""Realistic made-up runs for the tests of reports: nothing here was measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from harness.report import RunInfo, exit_code, require_findings
from harness.signature import signature_of
from harness.types import (
    NESTINGS,
    RECIPES,
    Attempt,
    Axes,
    CellResult,
    Evidence,
    Finding,
    Spec,
    Verdict,
    axes_dict,
    scalar_text,
)

EMULATED = ("mxfp8_block_scaling", "nvfp4_block_scaling")
CHECKS = ("state.unchanged", "compile.eager_frames", "compile.graphs", "fp8.gemms", "numerics.finite", "numerics.codes")
STACK = """Traceback (most recent call last):
  File "/opt/env/lib/python3.11/site-packages/torch/_dynamo/eval_frame.py", line 1044, in compile_wrapper
    return fn(*args, **kwargs)
  File "/home/user/project/models/block.py", line 41, in forward
    y = self.proj(x)
  File "/opt/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1776, in _call_impl
    return forward_call(*args, **kwargs)
RuntimeError: boom at 0x7f00aa"""


def cell_id(axes: Axes) -> str:
    """An id as the plan writes it: provider and every axis that is not the schema's default."""
    default = Axes(case=axes.case, provider=axes.provider, recipe=axes.recipe)
    parts = [f"provider={axes.provider.label}", f"recipe={axes.recipe.label}"]
    for field in dataclasses.fields(Axes)[3:]:
        value = getattr(axes, field.name)
        if value != getattr(default, field.name):
            parts.append(f"{field.name}={'x'.join(map(str, value)) if field.name == 'shape' else scalar_text(value)}")
    return f"{axes.case}[{','.join(parts)}]"


def passed(axes: Axes, **changes: Any) -> CellResult:
    evidence = Evidence.EMULATED if axes.recipe.name in EMULATED else Evidence.NATIVE
    return dataclasses.replace(
        CellResult(
            id=cell_id(axes),
            axes=axes_dict(axes),
            arch="cpu" if axes.arch == "host" else axes.arch,
            provider=axes.provider.label,
            case=axes.case,
            verdict=Verdict.PASS,
            reason="",
            signature="",
            evidence=evidence if axes.arch in ("host", "cpu") else Evidence.TRACED,
            checks=CHECKS,
            timing={"total_s": 0.25, "compile_s": 0.11},
        ),
        **changes,
    )


def red(result: CellResult, *findings: Finding, verdict: Verdict = Verdict.FAIL, **changes: Any) -> CellResult:
    reason = changes.pop("reason", str(findings[0]) if findings else "")
    return dataclasses.replace(
        result,
        verdict=verdict,
        reason=reason,
        findings=findings,
        signature=signature_of(verdict, findings, reason),
        **changes,
    )


def ci_axes() -> list[Axes]:
    """Seventy combinations: six recipes x fullgraph x five nestings on aot_eager, ten on inductor."""
    provider = Spec("reference")
    recipes = [Spec(name, (("amax_history_len", 16),) if name == "delayed_scaling" else ()) for name in RECIPES]
    planned = [
        Axes("toy_linear", provider, recipe, fullgraph=fullgraph, nesting=nesting)
        for recipe in recipes
        for fullgraph in (True, False)
        for nesting in NESTINGS
    ]
    extra = [
        Axes("toy_linear", provider, recipe, nesting=nesting, backend="inductor")
        for recipe in recipes[1:3]
        for nesting in NESTINGS
    ]
    return planned + extra


def green_results() -> list[CellResult]:
    """As ci.yaml ends when all is well: DelayedScaling is refused as documented, the rest passes."""
    results = []
    for axes in ci_axes():
        result = passed(axes)
        if axes.recipe.name == "delayed_scaling":
            checks = ("state.unchanged", "error.refusal")
            result = dataclasses.replace(result, reason="refused under compile as documented", checks=checks)
        results.append(result)
    return results


BREAK = Finding(
    "compile.eager_frames",
    "at most 0",
    "1 of 3 frames ran eagerly (call to builtin print is not supported in a traced region)",
    site="cases/toy_linear.py:58",
)
GRAPHS = Finding("compile.graphs", "1 forward graph(s)", "3", site="cases/toy_linear.py:58")
BYTES = Finding(
    "numerics.codes",
    "the oracle's codes",
    "3 of 16384 differ, first at (0, 17): 0x3a against 0x39, scale ratio 8.0",
    "layers.0 fprop, operand input, block (0, 0)",
)
LEAK = Finding("state.unchanged", "fp8_enabled=False", "fp8_enabled=True", "after exception in the region")
WGRAD = Finding("numerics.program", "deviation at most 1.2e-3", "4.7e-1", "layers.1.weight, block (3, 0)")


def mixed_results() -> list[CellResult]:
    """Five causes, beside skips, an expected failure, a quarantined red and a retry."""
    results = []
    for result in green_results():
        axes = result.axes
        recipe, nesting, fullgraph, backend = (axes[name] for name in ("recipe", "nesting", "fullgraph", "backend"))
        if nesting in ("nested", "deep") and not fullgraph and not recipe.startswith("delayed"):
            result = red(result, BREAK, GRAPHS)
        elif recipe == "float8_block_scaling" and backend == "inductor":
            result = red(result, BYTES)
        elif recipe == "nvfp4_block_scaling" and nesting == "sequential":
            lost = "worker gw1 died with signal 11 (SIGSEGV) after 3.1 s"
            result = red(result, verdict=Verdict.CRASH, reason=lost, detail=STACK, evidence=Evidence.NONE, checks=())
        elif recipe == "mxfp8_block_scaling" and nesting == "nested_disabled" and fullgraph:
            result = red(result, LEAK)
        elif recipe == "mxfp8_block_scaling" and nesting == "sequential":
            result = red(result, WGRAD, verdict=Verdict.XFAIL, notes=("waiver waivers/te.yaml:4: known (#12)",))
        elif recipe == "float8_rowwise_scaling" and nesting == "sequential" and fullgraph:
            result = red(result, WGRAD, gates=False)
        elif recipe == "float8_rowwise_scaling" and nesting == "sequential":
            reason = "no result within 60.0 s"
            attempts = (Attempt(Verdict.TIMEOUT, reason, "gw0", 60.0), Attempt(Verdict.TIMEOUT, reason, "gw1", 60.0))
            result = red(result, verdict=Verdict.TIMEOUT, reason=reason, attempts=attempts, evidence=Evidence.NONE)
        elif recipe.startswith("delayed") and nesting == "deep":
            result = dataclasses.replace(
                result,
                verdict=Verdict.SKIP,
                reason="deep nesting has no DelayedScaling partner",
                evidence=Evidence.NONE,
            )
        results.append(result)
    return results


# Cases as a library of them has: those with one program, and those with variants.
LIBRARY: dict[str, tuple[str, ...]] = {
    "autocast_outside": ("",),
    "recipe_switch": ("fields", "mutated_in_place", "two_fields_differ"),
    "disabled": ("alone", "inside_enabled"),
    "default_recipe": ("",),
    "exception": ("region", "op", "backward", "inner", "swallowed"),
    "reset_between_calls": ("calls", "inside_open_region"),
    "checkpoint": ("reentrant", "nonreentrant", "around", "fp8_checkpoint"),
    "microbatch": ("",),
    "mode_switch": ("train_eval", "no_grad", "inference_mode", "input_without_grad"),
    "multi_step": ("",),
    "amp": ("around", "inside"),
    "stack": ("module_wise", "whole_model"),
}


def library_results() -> list[CellResult]:
    """toy_linear in every nesting, a library of flat cases on two backends, and the user's own two targets.

    Red: checkpoint reentrant without fullgraph, for every recipe; amp inside under mxfp8_block_scaling.
    """
    provider = Spec("reference")
    recipes = [Spec(name) for name in RECIPES if name != "delayed_scaling"]
    planned = [
        Axes(case, provider, recipe, fullgraph=fullgraph, variant=variant, backend=backend)
        for case, variants in LIBRARY.items()
        for variant in variants
        for recipe in recipes
        for fullgraph in (True, False)
        for backend in ("eager", "aot_eager")
    ]
    for target in ("my_project.models.block:build", "my_project.models.head:build"):
        planned += [Axes("target", provider, recipe, fullgraph=False, target=target) for recipe in recipes[:2]]
    results = [*green_results(), *(passed(axes) for axes in planned)]
    for index, result in enumerate(results):
        axes = result.axes
        if axes["variant"] == "reentrant" and not axes["fullgraph"]:
            results[index] = red(result, BREAK)
        elif axes["case"] == "amp" and axes["variant"] == "inside" and axes["recipe"] == "mxfp8_block_scaling":
            results[index] = red(result, BYTES)
    return results


def crashed_results() -> list[CellResult]:
    lost = "worker gw0 died with signal 11 (SIGSEGV)"
    return [
        red(result, verdict=Verdict.CRASH, reason=lost, detail=STACK, evidence=Evidence.NONE, checks=())
        for result in green_results()
    ]


def one_of_each() -> list[CellResult]:
    """One result of every verdict, by every level of evidence where it passes, and a quarantined red."""
    axes = iter(ci_axes())
    results = [passed(next(axes), evidence=evidence) for evidence in Evidence if evidence is not Evidence.NONE]
    for verdict in Verdict:
        if verdict is not Verdict.PASS:
            results.append(red(passed(next(axes)), BYTES, verdict=verdict))
    return [*results, red(passed(next(axes)), BYTES, gates=False)]


def many_results(count: int, change: Callable[[int, CellResult], CellResult] = lambda _, r: r) -> list[CellResult]:
    """``count`` results over seeds, shapes and data kinds."""
    results: list[CellResult] = []
    base = ci_axes()
    for index in range(count):
        axes = dataclasses.replace(
            base[index % 60],
            seed=index // 60 % 40,
            data=("normal", "positive", "heavy_tailed")[index // 2400 % 3],
            dtype=("bfloat16", "float16", "float32")[index // 7200 % 3],
            dynamic=bool(index // 21600),
        )
        results.append(change(index, passed(axes)))
    return results


def run_of(results: Sequence[CellResult], **changes: Any) -> RunInfo:
    """A run whose exit code is what its results say."""
    require = changes.pop("require", "emulated")
    code, meaning = exit_code(results, require_findings(require, results))
    return dataclasses.replace(
        RunInfo(
            run_id="20300102-030405-a1b2c3",
            matrix="configs/ci.yaml",
            name="ci",
            require=require,
            started="2030-01-02T03:04:05+00:00",
            finished="2030-01-02T03:04:48+00:00",
            seconds=43.2,
            command=("python", "runner.py", "--matrix", "ci.yaml"),
            planned=len(results),
            selected=len(results),
            workers=2,
            versions={"python": "3.11.9", "torch": "2.13.0+cpu", "pytest": "9.2.0", "cuda": "none"},
            host={"arch": "cpu", "cpu": "x86_64 AVX2", "threads": "1"},
            env={"OMP_NUM_THREADS": "1"},
            git_commit="0123456789abcdef",
            exit_code=code,
            exit_reason=meaning,
        ),
        **changes,
    )


def ids(results: Iterable[CellResult]) -> list[str]:
    return [result.id for result in results]
