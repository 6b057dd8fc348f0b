"""harness.plan.targets: what can't be there is said with its place, and what only an import can tell is left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.plan import MatrixErrors, SelectionError, expand, load_matrix
from harness.plan.targets import check_targets, fault_of

FILES = {
    "mine.py": "import torch\ntry:\n    import fast as ops\nexcept ImportError:\n    ops = None\n"
    "def build(ctx): pass\nclass Maker:\n    def build(self): pass\n"
    "class Heir(Maker): pass\n@torch.made\nclass Made: pass\nclass Twice: pass\nTwice = torch.make(Twice)\n"
    "Maker.given = 1\nif torch:\n    builds = [b := 1]\n",
    "broken.py": "x = 1\ndef f(:\n",
    "raises.py": "def build(): pass\nraise ValueError('at import')\n",
    "star.py": "from mine import *\n",
    "dynamic.py": "def __getattr__(name): return build\n",
    "loops.py": "for name in 'ab':\n    globals()[name] = 1\n",
    "declares.py": "def f():\n    global build\n    build = f\n",
    "package/__init__.py": "",
    "package/model.py": "def build(): pass\n",
    "namespace/inner/model.py": "def build(): pass\n",
    "elsewhere/__init__.py": "__path__.append('/somewhere')\n",
}
MATRIX = """schema_version: 1
defaults: {case: target, recipe: float8_current_scaling}
matrix:
  target: ["mine:biuld", "mine:build", nowhere_at_all:f]
include:
  - {target: "package.modle:build"}
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "target",
    [
        "mine:build",
        "mine:Maker.build",
        "mine:Maker.__call__",
        "mine:Maker.given",
        "mine:Heir.no_such_method",  # it may inherit it: for the import to say
        "mine:Made.no_such_method",
        "mine:Twice.no_such_method",
        "mine:ops.no_such_function",
        "mine:ops",
        "mine:torch",
        "mine:builds",
        "mine:b",
        "raises:build",
        "star:anything",
        "dynamic:anything",
        "loops:a",
        "declares:build",
        "package.model:build",
        "namespace.inner.model:build",
        "namespace.inner.no_such_model:build",  # another directory may have it
        "elsewhere.model:build",
        "json:loads",
        "os.path:join",
        "math:anything",  # no Python source to read
        "harness.types:Axes",
    ],
)
def test_what_is_there_or_may_be_is_left_alone(directory: Path, target: str) -> None:
    assert fault_of(target, [directory]) is None


@pytest.mark.parametrize(
    ("target", "message", "near"),
    [
        ("mine:biuld", "mine.py has no biuld", "build"),
        ("mine:zzz", "mine.py has no zzz", None),
        ("mine:Maker.biuld", "mine.py has no Maker.biuld", "Maker.build"),
        ("mine:Maker.biuld.deeper", "mine.py has no Maker.biuld", "Maker.build"),
        ("nime:build", "no module named 'nime': neither installed, nor in the working directory", None),
        ("packages.model:build", "no module named 'packages'", "package"),
        ("package.modle:build", "no module named 'package.modle'", "package.model"),
        ("package.model:biuld", "model.py has no biuld", "build"),
        ("namespace.inner.model:biuld", "model.py has no biuld", "build"),
        ("mine.inner:build", "no module named 'mine.inner': mine is no package", None),
        ("broken:f", "broken.py:2: broken can't be imported", None),
    ],
)
def test_what_cant_be_there_is_said_with_the_nearest(
    directory: Path, target: str, message: str, near: str | None
) -> None:
    fault = fault_of(target, [directory])
    assert fault is not None
    assert message in fault[0]
    assert fault[1] == near


def test_the_examples_are_found_from_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    matrix = load_matrix("target.yaml")
    monkeypatch.chdir(tmp_path)
    assert check_targets(matrix, matrix.full) is matrix.full


def test_a_modules_code_is_not_run(directory: Path) -> None:
    assert fault_of("raises:biuld", [directory]) == ("raises.py has no biuld", "build")
    assert "raises" not in sys.modules


def test_all_bad_targets_of_a_matrix_are_told_at_once_where_they_stand(directory: Path) -> None:
    path = directory / "m.yaml"
    path.write_text(MATRIX)
    matrix = load_matrix(path)
    with pytest.raises(MatrixErrors) as raised:
        check_targets(matrix, matrix.full)
    assert [(e.line, e.column, e.nearest) for e in raised.value.errors] == [
        (4, 12, "build"),
        (4, 40, None),
        (6, 14, "package.model"),
    ]


def test_they_are_told_beside_whatever_else_is_wrong(directory: Path) -> None:
    path = directory / "m.yaml"
    path.write_text(
        MATRIX.replace("nowhere_at_all:f", "no_target").replace("float8_current", "float8_curent") + "more: 1\n"
    )
    with pytest.raises(MatrixErrors) as raised:
        load_matrix(path)
    assert [(e.line, e.column, e.nearest) for e in raised.value.errors] == [
        (2, 34, "float8_current_scaling"),
        (4, 12, "build"),
        (4, 40, None),
        (6, 14, "package.model"),
        (7, 1, None),
    ]
    assert "expected package.module:attribute, got 'no_target'" in str(raised.value)


def test_they_are_told_beside_cells_that_cannot_be(directory: Path) -> None:
    path = directory / "m.yaml"
    path.write_text(MATRIX + '  - {case: toy_linear, target: "mine:build"}\n')
    with pytest.raises(MatrixErrors) as raised:
        load_matrix(path)
    assert [e.line for e in raised.value.errors] == [4, 4, 6, 7]


def test_targets_of_set_are_told_as_such_and_good_ones_pass(directory: Path) -> None:
    path = directory / "m.yaml"
    path.write_text(MATRIX)
    matrix = load_matrix(path)
    good = expand(matrix, {"target": ["mine:build"]})
    assert check_targets(matrix, good) is good
    for target in ("mine:biuldd", "mine:biuld"):  # the second stands in the file too
        with pytest.raises(SelectionError, match=rf"--set target={target}: mine.py has no .*did you mean build"):
            check_targets(matrix, expand(matrix, {"target": [target]}))


def test_it_imports_no_torch() -> None:
    code = "import sys, harness.plan.targets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[1]).returncode == 0
