"""The case target: green and red modules of a user, judged with and without an oracle, found by a run's workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.plan import load_matrix
from harness.registry import LoadError
from harness.run.execute import execute_cell
from harness.targets import look_in
from harness.types import Axes, Cell, CellResult, Expectation, Spec, Verdict

ROOT = Path(__file__).resolve().parent.parent

MODEL = """
import torch
from harness.fp8 import ToyLinear

class Model(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.layer = kind, ToyLinear(128, 128)

    def forward(self, x):
        y = self.layer(x)
        if self.kind == "breaks" and y.sum() > 0:
            y = y + 1
        if self.kind == "infinite":
            y = y / torch.zeros((), dtype=y.dtype)
        return y

def make(kind):
    return lambda: (Model(kind), torch.zeros(128, 128, dtype=torch.bfloat16, requires_grad=True))

good, breaks, infinite = make("good"), make("breaks"), make("infinite")

def high_precision():
    return torch.nn.Linear(128, 128, dtype=torch.bfloat16), torch.zeros(128, 128, dtype=torch.bfloat16)

def raises():
    raise ValueError("no such size")

def odd_size(ctx):
    layer = ctx.provider.linear(100, 128, bias=True, dtype=ctx.dtype, device=ctx.device)
    model = Model("good")
    model.layer = layer
    return model, torch.zeros(128, 100, dtype=torch.bfloat16)
"""
MORE = """
import random
import torch
from torch.nn import functional as F
from harness import fp8
from harness.fp8 import ToyLinear

class Model(torch.nn.Module):
    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *inputs):
        return self.function(self, *inputs)

def x():
    return torch.zeros(128, 128, dtype=torch.bfloat16, requires_grad=True)

def linear(ctx, out=128):
    return ctx.provider.linear(128, out, bias=True, dtype=ctx.dtype, device=ctx.device)

def own():
    return ToyLinear(128, 128)

# Equal calls
def twice(ctx):
    return Model(lambda m, x: m.a(x) + m.b(m.a(x)) + m.b(m.a(x.contiguous())), a=linear(ctx), b=linear(ctx)), x()

def twice_alone():
    return Model(lambda m, x: m.a(x) + m.a(x), a=own()), x()

def constant():
    return Model(lambda m, x: (m.a(x), torch.ones_like(x))[1], a=own()), x()

# Random numbers
def dropout(ctx):
    return torch.nn.Sequential(torch.nn.Dropout(0.1), linear(ctx), torch.nn.Dropout(0.2)), x()

def dropout_off(ctx):
    return dropout(ctx)[0].eval(), x()

def draws_in_python():
    return Model(lambda m, x: m.a(x) * (1 + random.random()), a=own()), x()

def doubled(model, x):
    y = F.dropout(model.a(x), 0.5)
    return 2 * y if torch.compiler.is_compiling() else y

def draws_and_differs():
    return Model(doubled, a=own()), x()

def drawn_buffer(ctx):
    model = Model(lambda m, x: m.a(x) + m.n, a=linear(ctx))
    model.register_buffer("n", torch.randn(128, dtype=ctx.dtype))
    return model, x()

def averages(model, x):
    y = model.a(x)
    with torch.no_grad():
        model.n.mul_(0.9).add_(y.mean(0))
    return y + model.n

def stateful(ctx):
    model = Model(averages, a=linear(ctx))
    model.register_buffer("n", torch.zeros(128, dtype=ctx.dtype))
    return model, x()

# What the oracle doesn't know
def mixed(ctx):
    return Model(lambda m, x: m.b(m.a(x)), a=linear(ctx), b=ToyLinear(128, 128, dtype=ctx.dtype)), x()

def off_inside(model, x):
    with fp8.autocast(enabled=False):
        y = model.a(x)
    return model.a(y)

def own_region(ctx):
    return Model(off_inside, a=linear(ctx)), x()

def bfloat16_only(ctx):
    def forward(model, x):
        assert x.dtype == torch.bfloat16, "bfloat16 only"
        return model.a(x)
    return Model(forward, a=linear(ctx)), x()

def tied(ctx):
    embedding, head = torch.nn.Embedding(256, 128, dtype=ctx.dtype), linear(ctx, 256)
    head.weight = embedding.weight
    return Model(lambda m, i: m.h(m.a(m.e(i))), a=linear(ctx), h=head, e=embedding), torch.arange(128) % 64

# Results
def single_precision(ctx):
    return Model(lambda m, x: m.a(x).float(), a=linear(ctx)), x()

def no_gradient(ctx):
    return Model(lambda m, x: m.a(x).detach(), a=linear(ctx)), x()

def pair(ctx):
    return Model(lambda m, x: (m.a(x), x), a=linear(ctx)), x()

# FP8 now and then
def at_first(model, x):
    if model.first:
        model.first = False
        return model.a(x)
    return F.linear(x, model.a.weight, model.a.bias)

def only_at_first():
    model = Model(at_first, a=own())
    model.first = True
    return model, x()

def fallback(model, x):
    try:
        return model.a(x)
    except Exception:
        return F.linear(x, model.b.weight)

def swallows():
    model = Model(fallback, a=ToyLinear(120, 128), b=torch.nn.Linear(120, 128, dtype=torch.bfloat16))
    return model, torch.zeros(128, 120, dtype=torch.bfloat16)
"""
MATRIX = """
schema_version: 1
defaults: {backend: eager}
matrix: {case: [target], target: ["users_cell_model:TARGET"], recipe: [float8_current_scaling]}
include:
  - {case: toy_linear, recipe: float8_current_scaling}  # what require asks for: FP8 arithmetic that was judged
"""


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "users_cell_model.py").write_text(MODEL)
    (tmp_path / "users_more_models.py").write_text(MORE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("users_cell_model", "users_more_models"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    look_in([tmp_path])
    return tmp_path


def run(
    attribute: str,
    *,
    fullgraph: bool = True,
    module: str = "users_cell_model",
    backend: str = "aot_eager",
    provider: str = "reference",
    arch: str = "host",
) -> CellResult:
    axes = Axes("target", Spec(provider), Spec("float8_current_scaling"), target=f"{module}:{attribute}", arch=arch)
    return execute_cell(Cell("cell", replace(axes, fullgraph=fullgraph, backend=backend), None, Expectation()))


def more(attribute: str, **options: Any) -> CellResult:
    return run(attribute, module="users_more_models", **options)


def checks_of(result: CellResult) -> set[str]:
    return {finding.check for finding in result.findings}


def test_a_good_module_without_an_oracle_says_what_was_not_judged(beside: Path) -> None:
    result = run("good")
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    observed, numerics = result.notes
    assert observed.startswith("not stated, only observed: 1 forward and 1 backward graph(s)")
    assert "1 x float8_current_scaling; GEMMs: 3 fp8_native" in observed
    assert numerics.startswith("FP8 numerics not judged, there is no oracle: users_cell_model:good takes no context")
    assert {"numerics.finite", "numerics.eager", "numerics.later", "compile.captured"} <= set(result.checks)
    assert not {"numerics.codes", "numerics.kernel", "numerics.alpha"} & set(result.checks)


@pytest.mark.parametrize(
    ("attribute", "check"),
    [("breaks", "compile.breaks"), ("infinite", "numerics.finite"), ("high_precision", "fp8.gemms")],
)
def test_a_bad_module_is_red(beside: Path, attribute: str, check: str) -> None:
    result = run(attribute, fullgraph=False)
    assert result.verdict is Verdict.FAIL
    assert check in checks_of(result)


def test_an_exception_of_the_users_code_is_an_error_at_the_users_line(beside: Path) -> None:
    result = run("raises")
    assert result.verdict is Verdict.ERROR
    (finding,) = result.findings
    assert "ValueError: no such size" in finding.got
    line = MODEL.splitlines().index('    raise ValueError("no such size")') + 1
    assert finding.site.endswith(f"users_cell_model.py:{line}")
    assert "build_target" not in result.detail  # frames of the harness are folded


def test_what_a_layer_refuses_is_told_at_the_users_call_of_it(beside: Path) -> None:
    result = run("odd_size")
    line = MODEL.splitlines().index("        y = self.layer(x)") + 1
    assert [finding.site.rpartition("/")[2] for finding in result.findings] == [f"users_cell_model.py:{line}"] * 2
    assert "in_features is 100" in str(result.findings)
    assert "harness/fp8/shapes.py" in result.detail


def test_a_target_that_is_not_there_is_the_users_mistake(beside: Path) -> None:
    with pytest.raises(LoadError, match="has no goood"):
        run("goood")


def test_the_example_is_judged_by_the_oracle_where_it_takes_the_context() -> None:
    cells = {cell.axes.target: cell for cell in load_matrix("target.yaml").full.cells if cell.axes.fullgraph}
    assert set(cells) == {"examples.target.mlp:build", "examples.target.mlp:build_alone"}
    chosen = [c for c in load_matrix("target.yaml").full.cells if c.axes.recipe.name == "float8_current_scaling"]
    judged = {c.axes.target.rpartition(":")[2]: execute_cell(c) for c in chosen if c.axes.fullgraph}
    assert {name: result.verdict for name, result in judged.items()} == {
        "build": Verdict.PASS,
        "build_alone": Verdict.PASS,
    }
    assert {"numerics.codes", "numerics.program", "numerics.alpha"} <= set(judged["build"].checks)
    assert "numerics.codes" not in judged["build_alone"].checks


def runner(directory: Path, target: str) -> subprocess.CompletedProcess[str]:
    """A run with one worker whose working directory is another than the matrix's."""
    matrix = directory / "mine.yaml"
    matrix.write_text(MATRIX.replace("TARGET", target))
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    arguments = ["--matrix", str(matrix), "--report-dir", str(directory / "report"), "-n", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "runner.py"), *arguments]
    return subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=300)


def test_workers_find_a_module_beside_the_matrix(beside: Path) -> None:
    done = runner(beside, "good")
    assert done.returncode == 0, done.stdout + done.stderr
    results = [json.loads(line) for line in (beside / "report" / "results.jsonl").read_text().splitlines()]
    assert [(result["case"], result["verdict"]) for result in results] == [("target", "pass"), ("toy_linear", "pass")]
    assert "pass, numerics not judged" in done.stdout
    assert json.loads((beside / "report" / "run.json").read_text())["totals"]["unjudged"] == 1


def test_a_target_that_cant_be_imported_stops_the_run_with_its_line(beside: Path) -> None:
    (beside / "users_cell_model.py").write_text("import torch\ntorch.gone\ngood = 1\n")
    done = runner(beside, "good")
    assert done.returncode == 4
    said = done.stdout + done.stderr
    assert "mine.yaml:4:35 matrix.target: " in said
    assert "users_cell_model.py:2: importing users_cell_model raised AttributeError" in said
    assert "Traceback" not in said


def test_a_name_that_is_not_there_is_said_before_anything_starts(beside: Path) -> None:
    done = runner(beside, "godo")
    assert done.returncode == 4
    assert "mine.yaml:4:35: users_cell_model.py has no godo (did you mean good?)" in done.stdout + done.stderr
    assert not (beside / "report").exists()


JUDGED = "numerics.codes"


@pytest.mark.parametrize("attribute", ["twice", "dropout_off", "drawn_buffer", "stateful", "tied", "single_precision"])
def test_unusual_modules_are_judged_by_the_oracle_and_green(beside: Path, attribute: str) -> None:
    result = more(attribute)
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    assert JUDGED in result.checks


@pytest.mark.parametrize(
    ("attribute", "why"),
    [
        ("twice_alone", "takes no context"),
        ("dropout", "the program draws random numbers, of which the oracle would draw others"),
        ("mixed", "FP8 layers of users_more_models:mixed that ctx.provider.linear didn't make: b"),
        ("own_region", "open regions with ctx.provider.autocast, given recipes of ctx.provider.recipe"),
        ("bfloat16_only", "raised AssertionError on the oracle: bfloat16 only at"),
    ],
)
def test_what_the_oracle_cant_know_is_neither_judged_nor_red(beside: Path, attribute: str, why: str) -> None:
    result = more(attribute)
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    assert why in result.notes[-1]
    assert JUDGED not in result.checks
    assert ("to within 25% of each tensor's norm" in result.notes[-1]) == (attribute == "dropout")


@pytest.mark.parametrize(
    ("attribute", "checks"),
    [
        ("constant", {"compile.captured", "fp8.gemms", "fp8.recipe_seen"}),
        ("draws_and_differs", {"numerics.eager", "numerics.later"}),
        ("only_at_first", {"compile.recompiles", "fp8.gemms"}),
        ("swallows", {"error.unexpected"}),
    ],
)
def test_no_unusual_module_is_green_by_accident(beside: Path, attribute: str, checks: set[str]) -> None:
    result = more(attribute)
    assert result.verdict is Verdict.FAIL
    assert checks_of(result) == checks


def test_equal_calls_that_run_outside_of_graphs_are_red_all_the_same(beside: Path) -> None:
    result = more("twice_alone", provider="reference+compilation_off")
    assert "compile.captured" in checks_of(result)
    assert "0 of 2 FP8 linear calls" in str(result.findings)


def test_equal_calls_are_merged_in_traced_graphs_too(beside: Path) -> None:
    result = more("twice_alone", arch="sm100")
    assert (result.verdict, result.findings) == (Verdict.PASS, ())


def test_draws_of_pythons_own_generator_are_seeded_too(beside: Path) -> None:
    result = more("draws_in_python", fullgraph=False)  # Dynamo breaks the graph there: red, but not for its numbers
    assert "the program draws random numbers: generator states are not compared" in result.notes
    assert not {check for check in checks_of(result) if check.startswith("numerics.")}


def test_a_module_without_gradients_says_so(beside: Path) -> None:
    result = more("no_gradient")
    assert result.verdict is Verdict.PASS
    assert result.notes[0].endswith("no gradients, so nothing of a backward was judged")


def test_what_a_module_returned_is_the_users_mistake_and_said_once(beside: Path) -> None:
    result = more("pair")
    assert result.verdict is Verdict.ERROR
    (finding,) = result.findings
    assert "its module returned tuple of Tensor, Tensor, one tensor is needed" in finding.got
