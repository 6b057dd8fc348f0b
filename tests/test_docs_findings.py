"""docs/findings.md, configs/waivers/te*.yaml and the matrices that name them speak of the same findings and cells."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import yaml

from harness.judge.numerics import CHECKS as NUMERIC_CHECKS
from harness.judge.verdict import CHECKS
from harness.plan.load import load_matrix

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "findings.md").read_text()
WAIVERS = sorted((ROOT / "configs" / "waivers").glob("te*.yaml"))
MATRICES = {name: load_matrix(ROOT / "configs" / name).full.cells for name in ("nightly.yaml", "l0_te.yaml")}
NIGHTLY = MATRICES["nightly.yaml"]

SECTIONS = {int(part.split(".")[0]): part for part in re.split(r"^## (?=\d+\. )", TEXT, flags=re.MULTILINE)[1:]}
SCRIPTS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
COMMANDS = re.findall(r"--matrix (\S+) --cell '([^']+)'", TEXT)


def test_every_waived_finding_has_a_section_with_a_cell_and_a_script() -> None:
    comments = [line for path in WAIVERS for line in path.read_text().splitlines() if line.startswith("# Finding")]
    waived = {int(number) for line in comments for number in re.findall(r"\b\d+\b", line.partition(":")[0])}
    assert waived == set(SECTIONS) == {*range(1, 9), 11, 12, 14, 15, 16}
    for section in SECTIONS.values():
        assert "```python" in section
        assert "--cell '" in section


def test_every_command_names_a_cell_of_its_matrix_that_is_waived() -> None:
    cells = {(matrix, cell.id): cell for matrix, planned in MATRICES.items() for cell in planned}
    assert len(COMMANDS) == len(SECTIONS)
    assert all(cells[command].expect.waivers for command in COMMANDS)


def test_scripts_are_short_whole_and_our_own() -> None:
    for script in SCRIPTS:
        assert len(script.strip().splitlines()) <= 25
        tree = ast.parse(script)
        modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not any(str(name).startswith(("harness", "cases")) for name in modules)


def test_waivers_name_checks_that_exist_and_expire() -> None:
    known = {check.name for check in CHECKS} | set(NUMERIC_CHECKS)
    for entry in [entry for path in WAIVERS for entry in yaml.safe_load(path.read_text())]:
        assert entry["checks"], entry
        assert set(entry["checks"]) <= known
        assert (entry["kind"], entry["owner"], str(entry["expires"])) == ("xfail", "maintainers", "2027-06-30")
        assert entry["when"]["provider"] == "transformer_engine"
        assert entry["when"]["arch"].startswith("sm")


def test_no_waiver_touches_the_reference() -> None:
    waived = [cell for cell in NIGHTLY if cell.expect.waivers]
    assert {cell.axes.provider.name for cell in waived} == {"transformer_engine"}
    assert len(waived) < len(NIGHTLY) / 2
