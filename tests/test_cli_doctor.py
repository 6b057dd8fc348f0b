"""``runner.py doctor``: its command line, its exit codes, and once the real thing in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.cli import doctor
from harness.cli.main import main
from harness.doctor.gather import Inquiry, examine
from harness.doctor.schema import doctor_schema
from harness.providers import PROVIDERS
from harness.types import Spec
from tests.support.doctoring import SERVER, asker
from tests.support.running import ROOT, RUNNER
from tests.test_report_schema import valid

MATRIX = """\
schema_version: 1
name: made
require: {require}
matrix:
  provider: [reference, {{name: reference, emulate: false}}]
  recipe: [float8_current_scaling, mxfp8_block_scaling]
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Inquiry]:
    """Inquiries of the command, which are answered by a made-up H200."""
    seen: list[Inquiry] = []

    def answer(inquiry: Inquiry, env: Any) -> Any:
        seen.append(inquiry)
        return examine(inquiry, {}, asker=asker(), looker=lambda env: SERVER)

    monkeypatch.setattr(doctor, "examine", answer)
    monkeypatch.setenv("COLUMNS", "80")
    return seen


@pytest.fixture
def matrix(tmp_path: Path) -> Any:
    def write(require: str = "emulated") -> str:
        path = tmp_path / "made.yaml"
        path.write_text(MATRIX.format(require=require))
        return str(path)

    return write


def test_every_registered_provider_is_asked(asked: list[Inquiry], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    (inquiry,) = asked
    assert inquiry == Inquiry(tuple(map(Spec, PROVIDERS)))
    assert capsys.readouterr().out.rstrip().endswith("exit code 0: a matrix can be run here")


def test_providers_by_name_must_be_usable(asked: list[Inquiry]) -> None:
    words = ["--provider", "reference(emulate=false)", "--provider", "reference+leaky_exit", "--timeout", "7"]
    assert main(["doctor", *words]) == 0
    specs = (Spec("reference", (("emulate", False),)), Spec("reference+leaky_exit"))
    assert asked == [Inquiry(specs, frozenset(spec.label for spec in specs), seconds=7.0)]


def test_a_matrix_is_planned_as_for_a_run(asked: list[Inquiry], matrix: Any) -> None:
    words = ["--set", "seed=0,1", "--allow-env", "TORCH_COMPILE_JOB_ID"]
    assert main(["doctor", "--matrix", matrix(), *words]) == 0
    (inquiry,) = asked
    assert [spec.label for spec in inquiry.providers] == [*PROVIDERS, "reference(emulate=false)"]
    assert len(inquiry.cells) == 8
    assert (inquiry.words, inquiry.wanted) == (
        ("--set", "seed=0,1", "--allow-env", "TORCH_COMPILE_JOB_ID"),
        frozenset(),
    )
    assert inquiry.allowed_env == ("TORCH_COMPILE_JOB_ID",)


def test_the_providers_of_a_matrix_can_be_narrowed(asked: list[Inquiry], matrix: Any) -> None:
    main(["doctor", "--matrix", matrix(), "--provider", "reference(emulate=false)"])
    (inquiry,) = asked
    assert {spec.label for spec in inquiry.providers} == {"reference(emulate=false)"}
    assert {cell.axes.provider.label for cell in inquiry.cells} == {"reference(emulate=false)"}
    assert inquiry.words == ("--provider", "reference(emulate=false)")


@pytest.mark.parametrize(("require", "code"), [("emulated", 0), ("native", 1)])
def test_the_exit_code_says_whether_require_can_be_met(
    require: str, code: int, asked: list[Inquiry], matrix: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--matrix", matrix(require)]) == code
    out = capsys.readouterr().out
    assert f"require {require}: can{' NOT' if code else ''} be met here" in out


def test_json_is_one_object_and_nothing_else(
    asked: list[Inquiry], matrix: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--json", "--matrix", matrix("native")]) == 1
    value = json.loads(capsys.readouterr().out)
    assert valid(value, doctor_schema(), doctor_schema())
    assert (value["exit_code"], value["matrix"]["met"]) == (1, False)
    assert value["matrix"]["shortfalls"][0]["recipe"] == "mxfp8_block_scaling"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--provider", "transfomer_engine"], 4, "did you mean transformer_engine?"),
        (["--provider", "reference(emulat=false)"], 4, "--provider reference(emulat=false): "),
        (["--set", "seed=1"], 4, "--set changes a matrix: name it with --matrix"),
        (["--allow-env", "HOME"], 4, "--allow-env HOME: not a variable that can be allowed"),
        (["--matrix", "cii.yaml"], 4, "no such file"),
        (["--matrix", "ci.yaml", "--provider", "nobody"], 4, "unknown provider"),
        (["--matrix", "ci.yaml", "--provider", "transformer_engine"], 5, "nothing to run: "),
        (["--matrix", "ci.yaml", "--set", "nesting=flatt"], 4, "flat"),
        (["--jsno"], 4, "unknown option --jsno (did you mean --json?)"),
        (["--timeout", "0"], 4, "expected a number of seconds above 0"),
    ],
)
def test_a_wrong_command_line(
    words: list[str], code: int, message: str, asked: list[Inquiry], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *words]) == code
    assert message in capsys.readouterr().err
    assert asked == []


def test_an_invalid_matrix_is_exit_4_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("schema_version: 1\nrequire: nativ\nmatrix: {recipe: [mxfp8_block_scaling]}\n")
    assert main(["doctor", "--matrix", str(path)]) == 4
    assert "bad.yaml:2:10: " in capsys.readouterr().err


def test_the_front_imports_no_torch_and_no_provider() -> None:
    code = "import sys, harness.cli.doctor; print([n for n in sys.modules if n == 'torch' or n.endswith('.reference')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_real_thing() -> None:
    """From another directory, on this machine, with the children that a user's run has."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(RUNNER), "doctor", "--matrix", "ci.yaml", "--provider", "reference", "--json"]
    done = subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, check=False, timeout=300)
    value = json.loads(done.stdout)
    assert (done.returncode, done.stderr, value["exit_code"], value["arch"]) == (0, "", 0, "cpu")
    assert valid(value, doctor_schema(), doctor_schema())
    assert [one["answer"] for one in value["providers"]] == ["usable"]
    rows = {row["recipe"]: row["best"] for row in value["matrix"]["rows"]}
    assert (rows["float8_current_scaling"], rows["mxfp8_block_scaling"]) == ("native", "emulated")
    assert value["versions"]["torch"] in value["stack"][1]["text"]
