"""harness.judge.calibrate: known-good providers against every bound, and an exit status for each way not to be good."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from harness.judge import calibrate
from harness.judge.calibrate_measure import Job, measure
from harness.judge.calibrate_pool import WorkerLost
from harness.judge.calibrate_records import Measured, read
from tests.support.calibrating import cell, met

ONE = ["--seeds", "1", "--nesting", "flat", "--data", "normal", "--recipe", "float8_current_scaling"]


def give(monkeypatch: pytest.MonkeyPatch, cells: Sequence[Measured], error: BaseException | None = None) -> list[Job]:
    """Let a calibration measure ``cells``, and end with ``error``; returns the jobs that it asked for."""
    asked: list[Job] = []

    def measured(jobs: Sequence[Job], workers: int) -> Iterator[Measured]:
        asked.extend(jobs)
        yield from cells
        if error is not None:
            raise error

    monkeypatch.setattr(calibrate, "measure_all", measured)
    return asked


def test_the_reference_passes_and_every_bound_that_it_meets_is_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page, lines = tmp_path / "page.md", tmp_path / "margins.jsonl"
    arguments = ["--seeds", "1", "--first-seed", "30", "--nesting", "nested", "--data", "heavy_tailed"]
    status = calibrate.main([*arguments, "--markdown", str(page), "--json", str(lines)])
    printed = capsys.readouterr().out
    assert status == 0, printed
    assert "6 cells, 6 judged, 0 findings" in printed
    assert {line.split(" reference ")[0].strip() for line in printed.splitlines() if " reference " in line} >= {
        *(f"numerics.kernel {product}" for product in ("fprop", "dgrad", "wgrad")),
        *(f"numerics.alpha {product}" for product in ("fprop", "dgrad", "wgrad", "whole tensor")),
        *(f"numerics.program {kind} gradient" for kind in ("input", "weight", "bias")),
        "numerics.program output with bias",
        "numerics.tap output = recorded output + bias",
        "numerics.nonzero share of zeros",
    }
    kept = read(lines)
    assert {(one.seed, one.data, one.nesting, one.backend) for one in kept.cells} == {
        (30, "heavy_tailed", "nested", "none")
    }
    assert len({one.recipe for one in kept.cells}) == 6
    text = page.read_text()
    assert f"python -m harness.judge.calibrate {' '.join(arguments)}    # 6 cells" in text
    assert str(tmp_path) not in text + lines.read_text()


def test_a_compiled_run_meets_the_comparisons_with_eager() -> None:
    (job,) = calibrate.jobs_of(["--backend", "aot_eager", *ONE, "--shape", "32,64,32", "--dtype", "float32"])
    found = measure(job)
    assert found.findings == ()
    counts = {item.name: item.count for item in found.met}
    assert counts["numerics.eager", "bits"] > 0
    assert counts["numerics.later", "bits"] > 0
    assert (found.backend, found.dtype, found.shape) == ("aot_eager", "float32", "32,64,32")


def test_a_good_run_with_a_finding_is_bad(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    give(monkeypatch, [cell(findings=("numerics.codes: expected a, got b",), cell="the cell")])
    assert calibrate.main(ONE) == 1
    assert "RED the cell: numerics.codes: expected a, got b" in capsys.readouterr().out


@pytest.mark.parametrize(("worst", "status"), [(0.5, 0), (0.6, 1), (1.4, 1), (math.nan, 1), (math.inf, 1)])
def test_nearer_than_a_factor_of_two_is_bad_and_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], worst: float, status: int
) -> None:
    give(monkeypatch, [cell(), cell(met(worst=worst), cell="the near one")])
    assert calibrate.main(ONE) == status
    said = f"nearer to a bound than a factor of two: {'inf' if not math.isfinite(worst) else worst}"
    assert (f"{said}" in capsys.readouterr().out) == bool(status)


def test_a_bound_without_a_name_is_bad(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    give(monkeypatch, [cell(met(), met(("numerics.kernel", "new")))])
    assert calibrate.main(ONE) == 1
    assert "numerics.kernel new is not in the catalogue of bounds" in capsys.readouterr().out


@pytest.mark.parametrize("cells", [[], [cell(judged=False)], [cell(met(worst=None))]])
def test_nothing_measured_is_not_good(monkeypatch: pytest.MonkeyPatch, cells: list[Measured]) -> None:
    give(monkeypatch, cells)
    assert calibrate.main(ONE) == 5


def test_a_cell_that_gave_nothing_is_bad_among_good_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, [cell(), cell(judged=False)])
    assert calibrate.main(ONE) == 1


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), 2), (WorkerLost("killed"), 3)])
def test_a_run_that_ends_early_keeps_what_it_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException, status: int
) -> None:
    page, lines = tmp_path / "page.md", tmp_path / "margins.jsonl"
    page.write_text("as it was")
    give(monkeypatch, [cell(met(worst=0.25))], error)
    assert calibrate.main([*ONE, "--seeds", "4", "--markdown", str(page), "--json", str(lines)]) == status
    assert page.read_text() == "as it was"
    assert [one.met[0].worst for one in read(lines).cells] == [0.25]
    assert calibrate.main(["--from-json", str(lines), "--markdown", str(page)]) == 0
    assert "# interrupted: 1 of 4 cells" in page.read_text()


def test_several_files_make_the_sections_of_their_machines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    for number, worst in enumerate((0.2, 0.6)):
        give(monkeypatch, [cell(met(worst=worst))])
        calibrate.main([*ONE, "--first-seed", str(number), "--json", str(tmp_path / f"{number}.jsonl")])
    files = [f"--from-json={tmp_path / f'{number}.jsonl'}" for number in range(2)]
    other = tmp_path / "1.jsonl"
    other.write_text(other.read_text().replace('"machine": "CPU"', '"machine": "GPU (sm90)"'))
    assert calibrate.main([*files, "--markdown", str(page)]) == 1
    text = page.read_text()
    cpu, gpu = text.split("<!-- end of calibration: CPU -->")
    assert "**0.20**" in cpu
    assert "## GPU (sm90)" in gpu
    assert "work to do" in gpu
    assert "nearer to a bound" in capsys.readouterr().out


def test_the_seeds_are_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = give(monkeypatch, [cell()])
    assert calibrate.main(["--seeds", "2", "--first-seed", "40", "--recipe", "float8_current_scaling"]) == 0
    assert {job.axes.seed for job in asked} == {40, 41}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--recipe", "int8"],
        ["--seeds", "0"],
        ["--workers", "0"],
        ["--shape", "1,2"],
        ["--shape", "1,x,3"],
        ["--arch", "sm12"],
        ["--from-json", "no such file"],
        ["--dtype", "float64"],
        ["--shape", "0,1,1"],
        ["--unknown"],
    ],
)
def test_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        calibrate.main(arguments)
    assert stopped.value.code == 4
    assert capsys.readouterr().err


def test_the_command_of_the_page_leaves_out_this_machines_files() -> None:
    given = ["--json", "/tmp/a b", "--seeds", "2", "--markdown=/tmp/x", "--shape", "1,2,3"]
    assert calibrate.command(given) == "python -m harness.judge.calibrate --seeds 2 --shape 1,2,3"
