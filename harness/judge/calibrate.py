"""Value against bound for good runs: ``python -m harness.judge.calibrate --seeds 20``.

Runs a known-good provider eagerly over recipes, nestings, kinds of data and seeds, judges it, and prints for each check
the largest value / bound and where it was met. A good run stays below one half: then a bound could be twice as tight.
Every finding is printed; the exit status is 1 if there was any.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from cases import CASES
from harness.judge.numerics import NumericsVerdict, judge_numerics
from harness.judge.numerics_bench import Margin
from harness.observe.run import Batches, build_program, parameters_of, run_steps
from harness.observe.types import Observations
from harness.program import Case, CaseContext, Program
from harness.providers import PROVIDERS
from harness.providers.protocol import ProgramProvider, Provider
from harness.registry import load
from harness.types import DATA_KINDS, NESTINGS, PARTNERS, RECIPES, Axes, Evidence, Spec


@dataclass(frozen=True)
class Plan:
    """What to run: every combination of these."""

    provider: str
    case: str
    recipes: Sequence[str]
    nestings: Sequence[str]
    data: Sequence[str]
    seeds: int
    shape: tuple[int, int, int]
    dtype: str
    arch: str

    def axes(self) -> Iterator[Axes]:
        for recipe, nesting, data, seed in itertools.product(self.recipes, self.nestings, self.data, range(self.seeds)):
            yield Axes(
                case=self.case,
                provider=Spec(self.provider),
                recipe=Spec(recipe),
                arch=self.arch,
                nesting=nesting,
                dtype=self.dtype,
                shape=self.shape,
                data=data,
                seed=seed,
            )


def observe_eager(provider: Provider, axes: Axes, device: torch.device) -> Observations:
    """One eager run of a cell's program under the tap, without the rest of an observation."""
    case: Case = load(CASES[axes.case])
    inner = Spec(PARTNERS[axes.recipe.name])

    def build(on: ProgramProvider) -> Program:
        own = on is provider
        dtype = getattr(torch, axes.dtype) if own else torch.float64
        return case.build(CaseContext(on, axes, inner, device if own else torch.device("cpu"), dtype))

    provider.reset()
    program = build_program(build, provider, axes)
    batches = Batches(program, axes, kept=program.expects.steps)
    parameters = parameters_of(program)
    with provider.tap() as records:
        run = run_steps(program, batches, records, program.forward, lambda phase: None, ("eager", "eager"))
    return Observations(
        evidence=Evidence.EMULATED,
        arch=axes.arch,
        expects=program.expects,
        rebuild=lambda on: build_program(build, on, axes),
        parameters=parameters,
        batches=batches.drawn(),
        eager=run,
    )


def collect(verdict: NumericsVerdict, worst: dict[str, Margin], place: str) -> None:
    """Fold one cell's margins into ``worst``."""
    for name, margin in verdict.summary.get("margins", {}).items():
        if name not in worst or not margin["ratio"] <= worst[name].ratio:
            worst[name] = Margin(margin["ratio"], f"{place}: {margin['where']}")


def run(plan: Plan, device: torch.device) -> int:
    """Run a plan and print the table; the exit status."""
    provider: Provider = load(PROVIDERS[plan.provider])()
    cells = findings = 0
    seconds = 0.0
    for recipe, cells_of_recipe in itertools.groupby(plan.axes(), key=lambda a: a.recipe.label):
        worst: dict[str, Margin] = {}
        for axes in cells_of_recipe:
            obs = observe_eager(provider, axes, device)
            started = time.perf_counter()
            verdict = judge_numerics(obs, axes)
            seconds += time.perf_counter() - started
            cells += 1
            place = f"{axes.nesting} {axes.data} seed {axes.seed}"
            collect(verdict, worst, place)
            for finding in verdict.findings:
                findings += 1
                print(f"  RED {recipe} {place}: {finding}")
        for name, margin in sorted(worst.items()):
            print(f"{recipe:24} {name:18} {margin.ratio:8.4f}  {margin.where}")
    print(f"{cells} cells, {findings} findings, {1e3 * seconds / max(cells, 1):.1f} ms of judging per cell")
    return 1 if findings or not cells else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m harness.judge.calibrate", description=__doc__.split("\n")[0])
    parser.add_argument("--provider", default="reference", choices=list(PROVIDERS))
    parser.add_argument("--case", default="toy_linear", choices=list(CASES))
    parser.add_argument("--recipe", action="append", choices=RECIPES, help="repeatable; all six by default")
    parser.add_argument("--nesting", action="append", choices=NESTINGS, help="repeatable; all by default")
    parser.add_argument("--data", action="append", choices=DATA_KINDS, help="repeatable; all three by default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--shape", type=int, nargs=3, default=(128, 256, 128), metavar=("M", "K", "N"))
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--arch", default="cpu", help="the machine's architecture; sets device and accumulator")
    options = parser.parse_args(arguments)
    plan = Plan(
        options.provider,
        options.case,
        options.recipe or RECIPES,
        options.nesting or NESTINGS,
        options.data or DATA_KINDS,
        options.seeds,
        tuple(options.shape),
        options.dtype,
        options.arch,
    )
    return run(plan, torch.device("cpu" if options.arch == "cpu" else "cuda"))


if __name__ == "__main__":
    sys.exit(main())
