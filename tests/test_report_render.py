import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import pytest

from harness.report import StoreError, read_results, read_run, rerender, write_reports
from harness.report.__main__ import main
from harness.report.render import FORMATS
from harness.report.view import View
from harness.types import Verdict
from tests.support.report_fakes import (
    BREAK,
    BYTES,
    GRAPHS,
    green_results,
    many_results,
    mixed_results,
    one_of_each,
    red,
    run_of,
)

FILES = ["comment.md", "junit.xml", "report.html", "results.jsonl", "run.json", "summary.md"]


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def contents(directory):
    return {path.name: path.read_text() for path in directory.iterdir()}


@pytest.mark.parametrize("make", [green_results, mixed_results, one_of_each, list])
def test_all_reports_are_written_and_nothing_else(tmp_path, make) -> None:
    directory = tmp_path / "new" / "run"
    write_reports(directory, run_of(make()), make())
    assert names(directory) == FILES
    assert read_results(directory) == make()
    assert read_run(directory) == run_of(make())


def test_every_verdict_is_told_in_every_format(tmp_path) -> None:
    write_reports(tmp_path, run_of(one_of_each()), one_of_each())
    for name in FILES:
        text = (tmp_path / name).read_text()
        for verdict in Verdict:
            assert verdict.value in text, f"{verdict.value} is missing from {name}"


def test_rerender_makes_the_same_files_again_from_what_was_stored(tmp_path) -> None:
    write_reports(tmp_path, run_of(mixed_results()), mixed_results())
    before = contents(tmp_path)
    for name in FORMATS:
        (tmp_path / name).unlink()
    run, results = rerender(tmp_path)
    assert (run, results) == (run_of(mixed_results()), mixed_results())
    assert contents(tmp_path) == before


def test_rerender_of_a_cut_file_writes_nothing(tmp_path) -> None:
    write_reports(tmp_path, run_of(mixed_results()), mixed_results())
    text = (tmp_path / "results.jsonl").read_text()
    (tmp_path / "results.jsonl").write_text(text[:-5])
    for name in FORMATS:
        (tmp_path / name).unlink()
    with pytest.raises(StoreError, match="cut short"):
        rerender(tmp_path)
    assert names(tmp_path) == ["results.jsonl", "run.json"]


def test_a_doubled_result_writes_nothing(tmp_path) -> None:
    results = [*green_results(), green_results()[0]]
    with pytest.raises(StoreError, match="reported twice"):
        write_reports(tmp_path, run_of(results), results)
    assert names(tmp_path) == []


def test_a_broken_renderer_costs_neither_results_nor_an_old_report(tmp_path, monkeypatch) -> None:
    write_reports(tmp_path, run_of(green_results()), green_results())
    old = (tmp_path / "report.html").read_text()

    def broken(view: View):
        yield "half"
        raise RuntimeError("renderer broke")

    monkeypatch.setattr("harness.report.render.FORMATS", {"report.html": broken})
    with pytest.raises(RuntimeError, match="renderer broke"):
        write_reports(tmp_path, run_of(mixed_results()), mixed_results())
    assert (tmp_path / "report.html").read_text() == old
    assert read_results(tmp_path) == mixed_results()
    assert names(tmp_path) == FILES


def test_an_unwritable_directory_is_an_os_error(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        write_reports(tmp_path / "file" / "run", run_of([]), [])


def test_twenty_thousand_results_take_less_than_ten_seconds(tmp_path) -> None:
    def change(index, result):
        if index % 20 == 3:
            return red(result, BREAK, GRAPHS)
        return red(result, BYTES) if index % 7 == 0 and result.axes["data"] == "positive" else result

    results = many_results(20_000, change)
    began = time.process_time()  # what others do on this machine is not the reports' doing
    write_reports(tmp_path, run_of(results), results)
    assert time.process_time() - began < 10
    assert int(ElementTree.parse(tmp_path / "junit.xml").getroot()[0].get("tests")) == 20_000


def test_the_command_renders_again_and_prints_the_summary(tmp_path, capsys) -> None:
    write_reports(tmp_path, run_of(mixed_results()), mixed_results())
    (tmp_path / "report.html").unlink()
    assert main([str(tmp_path)]) == 0
    assert "exit code 1: 19 cells not as expected" in capsys.readouterr().out
    assert names(tmp_path) == FILES


def test_the_command_refuses_what_it_cannot_read(tmp_path, capsys) -> None:
    assert main([str(tmp_path)]) == 4
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {tmp_path}/run.json: can't be read")
    assert captured.out == ""
    assert main([]) == 4
    assert main(["--help"]) == 0


def test_reports_do_not_import_torch() -> None:
    code = (
        "import sys, harness.report, harness.report.__main__, harness.report.schema, harness.signature;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
