"""The case target: green and red modules of a user, judged with and without an oracle, found by a run's workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "users_cell_model", raising=False)
    look_in([tmp_path])
    return tmp_path


def run(attribute: str, *, fullgraph: bool = True) -> CellResult:
    target = f"users_cell_model:{attribute}"
    axes = Axes("target", Spec("reference"), Spec("float8_current_scaling"), fullgraph=fullgraph, target=target)
    return execute_cell(Cell("cell", axes, None, Expectation()))


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
    (beside / "users_cell_model.py").write_text("import torch\ntorch.gone\n")
    done = runner(beside, "good")
    assert done.returncode == 4
    assert "users_cell_model.py:2: importing users_cell_model raised AttributeError" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
