import dataclasses
import json
import os
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.report import RunInfo, StoreError, read_results, read_run
from harness.report.store import write_results, write_run, write_text_atomically
from harness.types import Evidence
from tests.support.report_fakes import BYTES, ci_axes, mixed_results, one_of_each, passed, red, run_of


@pytest.fixture
def stored(tmp_path):
    results = mixed_results()
    write_results(tmp_path, results)
    write_run(tmp_path, run_of(results), results)
    return tmp_path


def lines_of(directory):
    return (directory / "results.jsonl").read_text().split("\n")


def rewrite(directory, text):
    (directory / "results.jsonl").write_text(text)


def test_what_was_written_is_read(stored) -> None:
    assert read_results(stored) == mixed_results()
    assert read_results(stored / "results.jsonl") == mixed_results()
    assert read_run(stored) == run_of(mixed_results())


def test_one_line_a_result_in_plan_order(stored) -> None:
    ids = [json.loads(line)["id"] for line in lines_of(stored)[:-1]]
    assert ids == [result.id for result in mixed_results()]


def test_every_verdict_survives(tmp_path) -> None:
    write_results(tmp_path, one_of_each())
    assert read_results(tmp_path) == one_of_each()


@settings(max_examples=50, deadline=None)
@given(text=st.text(st.characters(categories=["L", "N", "P", "S", "Z", "C"]), max_size=80))
def test_any_text_survives(text, tmp_path_factory) -> None:
    directory = tmp_path_factory.mktemp("store")
    result = dataclasses.replace(passed(ci_axes()[0]), reason=text, detail=text + "\u2028\r\x00")
    write_results(directory, [result])
    assert read_results(directory) == [result]


def test_infinities_become_words_and_the_file_stays_json(tmp_path) -> None:
    result = passed(ci_axes()[0], numerics={"worst": float("nan"), "ratio": float("inf")})
    write_results(tmp_path, [result])
    assert read_results(tmp_path)[0].numerics == {"worst": "nan", "ratio": "inf"}


def test_a_file_cut_inside_a_line_is_refused_with_its_line(stored) -> None:
    text = (stored / "results.jsonl").read_text()
    rewrite(stored, text[:-40])
    with pytest.raises(StoreError, match=r"results\.jsonl:70: cut short"):
        read_results(stored)


def test_a_file_that_lost_only_its_last_newline_is_refused(stored) -> None:
    rewrite(stored, (stored / "results.jsonl").read_text().rstrip("\n"))
    with pytest.raises(StoreError, match=r"results\.jsonl:70: cut short"):
        read_results(stored)


def test_a_file_cut_between_lines_is_refused_by_the_count_in_run_json(stored) -> None:
    rewrite(stored, "\n".join(lines_of(stored)[:40]) + "\n")
    with pytest.raises(StoreError, match=r"holds 40 results, but .*run\.json recorded 70"):
        read_results(stored)


def test_a_file_cut_to_nothing_is_refused(stored) -> None:
    rewrite(stored, "")
    with pytest.raises(StoreError, match="holds 0 results"):
        read_results(stored)


def test_a_line_broken_in_the_middle_of_the_file_is_named(stored) -> None:
    lines = lines_of(stored)
    lines[3] = lines[3][:50]
    rewrite(stored, "\n".join(lines))
    with pytest.raises(StoreError, match=r"results\.jsonl:4: cut short or not JSON"):
        read_results(stored)


def test_a_doubled_id_is_named_with_both_lines(stored) -> None:
    lines = lines_of(stored)
    lines[5] = lines[1]
    rewrite(stored, "\n".join(lines))
    with pytest.raises(StoreError, match=r"results\.jsonl:6: .* stands twice \(first on line 2\)"):
        read_results(stored)


def test_a_doubled_id_is_never_written(tmp_path) -> None:
    result = passed(ci_axes()[0])
    with pytest.raises(StoreError, match="reported twice"):
        write_results(tmp_path, [result, red(result, BYTES)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", [2, 0, None, "1", True])
def test_an_unknown_schema_version_is_refused(stored, version) -> None:
    lines = lines_of(stored)
    lines[2] = json.dumps({**json.loads(lines[2]), "schema_version": version})
    rewrite(stored, "\n".join(lines))
    with pytest.raises(StoreError, match=r"results\.jsonl:3: schema_version .* is not known"):
        read_results(stored)


def test_an_unknown_field_of_a_newer_harness_is_ignored(stored) -> None:
    lines = [json.dumps({**json.loads(line), "weather": "fine"}) for line in lines_of(stored)[:-1]]
    rewrite(stored, "\n".join(lines) + "\n")
    assert read_results(stored) == mixed_results()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1, 2]", "not a JSON object"),
        ('{"schema_version": 1, "id": "a"}', "not a cell result: KeyError"),
        ("", "not JSON"),
    ],
)
def test_a_line_that_is_no_result_is_refused(stored, line, reason) -> None:
    lines = lines_of(stored)
    lines[0] = line
    rewrite(stored, "\n".join(lines))
    with pytest.raises(StoreError, match=f"results.jsonl:1: .*{reason}"):
        read_results(stored)


def test_an_unknown_verdict_is_refused(stored) -> None:
    rewrite(stored, (stored / "results.jsonl").read_text().replace('"verdict": "crash"', '"verdict": "fine"'))
    with pytest.raises(StoreError, match="not a cell result: ValueError"):
        read_results(stored)


def test_a_missing_store_is_named(tmp_path) -> None:
    with pytest.raises(StoreError, match=r"results\.jsonl: can't be read: No such file"):
        read_results(tmp_path)
    with pytest.raises(StoreError, match=r"run\.json: can't be read: No such file"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"schema_version": 1, "run_id": "r", "matrix": "m", "seco', "cut short or not JSON"),
        ('{"schema_version": 7}', "schema_version 7 is not known"),
        ('{"schema_version": 1, "run_id": "r"}', "not a run: matrix: "),
        ('{"schema_version": 1, "run_id": "r", "matrix": "m", "seconds": "long"}', "not a run: seconds: "),
        ('{"schema_version": 1, "run_id": "r", "matrix": "m", "require": "luck"}', "'luck' is no level of evidence"),
    ],
)
def test_a_damaged_run_json_is_refused(tmp_path, text, reason) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(StoreError, match=reason):
        read_run(tmp_path)


def test_run_json_holds_totals_and_blame(stored) -> None:
    data = json.loads((stored / "run.json").read_text())
    assert data["totals"]["results"] == 70
    assert data["totals"]["by_verdict"]["crash"] == 2
    assert data["totals"]["by_evidence"][Evidence.TRACED.value] == 0
    assert data["blame"] == "product"


def test_an_interrupted_write_leaves_the_old_file_and_no_other(tmp_path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")

    def chunks():
        yield "half of the new"
        raise RuntimeError("renderer broke")

    with pytest.raises(RuntimeError, match="renderer broke"):
        write_text_atomically(target, chunks())
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_write_replaces_the_whole_file_and_respects_the_umask(tmp_path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("a long old text")
    old = os.umask(0o027)
    try:
        write_text_atomically(target, ["new"])
    finally:
        os.umask(old)
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_an_unwritable_directory_is_an_os_error(tmp_path) -> None:
    with pytest.raises(OSError):
        write_results(tmp_path / "missing", [passed(ci_axes()[0])])


def test_a_run_without_optional_fields_is_read(tmp_path) -> None:
    (tmp_path / "run.json").write_text('{"schema_version": 1, "run_id": "r", "matrix": "m"}')
    assert read_run(tmp_path) == RunInfo(run_id="r", matrix="m")


def test_totals_that_an_earlier_harness_did_not_record_are_not_missed(stored) -> None:
    data = json.loads((stored / "run.json").read_text())
    del data["totals"]["retried"], data["totals"]["by_verdict"]["infra"]
    (stored / "run.json").write_text(json.dumps(data))
    assert read_results(stored) == mixed_results()
    data["totals"]["by_verdict"]["pass"] += 1
    (stored / "run.json").write_text(json.dumps(data))
    with pytest.raises(StoreError, match=r"by_verdict.pass \d+ against \d+: edited\?$"):
        read_results(stored)
