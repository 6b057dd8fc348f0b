"""The public face of the plan, and what it must not cost."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import harness.plan
from harness.plan import MatrixErrors, SelectionError, load_matrix


def test_planning_imports_no_torch() -> None:
    code = (
        "import sys; from harness.plan import load_matrix, expand, select, Selection, render_plan; "
        "m = load_matrix('ci.yaml'); render_plan(select(expand(m, {'seed': ['1']}), Selection())); "
        "sys.exit(sorted(name for name in sys.modules if name.split('.')[0] in ('torch', 'numpy')) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_everything_public_exists() -> None:
    assert all(hasattr(harness.plan, name) for name in harness.plan.__all__)


def test_cells_and_errors_cross_process_borders() -> None:
    plan = load_matrix("ci.yaml").full
    assert pickle.loads(pickle.dumps(plan)) == plan
    with pytest.raises(MatrixErrors) as caught:
        load_matrix("/no/such.yaml")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    error = SelectionError("no", ("a", "b"))
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "no; nearest:\n  a\n  b"


def test_an_error_without_errors_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="at least one"):
        MatrixErrors([])
