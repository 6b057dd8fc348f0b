"""configs/baselines/: every file fits its matrix, and this machine still measures what the CPU's says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from harness.plan import load_matrix
from harness.plan.baseline import baseline_text, baseline_use, read_baseline
from harness.report import read_results, read_run
from harness.report.baseline import judge_baseline
from tests.support.running import RUNNER
from tests.test_end_to_end import command

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
FILES = sorted((CONFIGS / "baselines").glob("*.json"))
CI = CONFIGS / "baselines" / "ci.cpu.json"
PICKED = (
    "toy_linear[provider=reference,recipe=float8_current_scaling,nesting=nested,inner=float8_block_scaling]",
    "toy_linear[provider=reference,recipe=delayed_scaling(amax_history_len=16),fullgraph=false]",
)


def test_there_is_one_for_the_cpu() -> None:
    assert CI in FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_baseline_fits_its_matrix(path: Path) -> None:
    baseline = read_baseline(path).baseline
    plan = load_matrix(CONFIGS / f"{baseline.matrix}.yaml").full
    assert {cell.id for cell in baseline.cells} <= {cell.id for cell in plan.cells}
    assert baseline_text(baseline) == path.read_text(), "not as --update-baseline writes it"
    assert path.name.startswith(f"{baseline.matrix}.")
    assert any(cell.evidence == "native" for cell in baseline.cells)


def test_a_cell_that_measures_what_it_did_is_green(tmp_path: Path) -> None:
    found = read_baseline(CI)
    measured = found.baseline.environment.versions["torch"].partition("+")[0]
    if torch.cuda.is_available() or torch.__version__.partition("+")[0] != measured:
        pytest.skip(f"{CI.name} was measured on a CPU with torch {measured}")
    picked = [word for cell_id in PICKED for word in ("--cell", cell_id)]
    done = command(
        *(str(RUNNER), "--matrix", str(CONFIGS / "ci.yaml"), "--baseline", str(CI), "-n", "0", *picked),
        *("--report-dir", str(tmp_path / "out")),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report, results = read_run(tmp_path / "out").baseline, read_results(tmp_path / "out")
    assert report is not None
    assert (report.compared, report.findings, report.better) == (2, (), ())

    # The same results against a baseline that measured one FP8 GEMM more.
    cells = tuple(
        dataclasses.replace(cell, fp8_gemms=10) if cell.id == PICKED[0] else cell for cell in found.baseline.cells
    )
    better = dataclasses.replace(found, baseline=dataclasses.replace(found.baseline, cells=cells))
    use = baseline_use(better, str(CI), load_matrix(CONFIGS / "ci.yaml").full, found.baseline.environment)
    (finding,) = judge_baseline(use, results, complete=False).findings
    assert (finding.check, finding.expected, finding.got, finding.ids) == (
        *("baseline.fp8_gemms", "at least 10", "9"),
        (PICKED[0],),
    )
