"""The judge shares no code with the system that it judges."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import harness.judge

JUDGE = Path(harness.judge.__file__).parent
MODULES = sorted(p.stem for p in JUDGE.glob("*.py") if p.stem != "__init__")
FORBIDDEN = "harness.fp8"
NARROW = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn_x2", "float8_e8m0fnu", "_scaled_mm", "scaled_mm")


def imports_of(source: str) -> set[str]:
    """Every module that a source names in an import, at any depth, and every string constant."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
            names.add(node.value)
    return names


def forbidden(source: str) -> set[str]:
    return {name for name in imports_of(source) if name == FORBIDDEN or name.startswith(FORBIDDEN + ".")}


def test_the_scan_sees_every_form_of_import() -> None:
    for line in (
        "import harness.fp8",
        "import harness.fp8.formats as f",
        "from harness import fp8",
        "from harness.fp8 import formats",
        "from harness.fp8.quantizer import quantize",
        "def f():\n    from harness.fp8 import tap",
        "import importlib; importlib.import_module('harness.fp8.formats')",
    ):
        assert forbidden(line), line
    assert not forbidden("from harness.judge import formats\nname = 'harness.fp8ish'")


def test_no_module_of_the_judge_names_the_reference_system() -> None:
    assert len(MODULES) > 15
    for module in MODULES:
        assert forbidden((JUDGE / f"{module}.py").read_text()) == set(), module


def test_the_oracle_does_no_narrow_cast_of_torch() -> None:
    for module in MODULES:
        tree = ast.parse((JUDGE / f"{module}.py").read_text())
        attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert attributes.isdisjoint(NARROW), module


def test_importing_all_of_the_judge_loads_nothing_of_the_reference_system() -> None:
    code = (
        "import importlib, sys\n"
        f"for name in {MODULES!r}: importlib.import_module('harness.judge.' + name)\n"
        "print([name for name in sys.modules if name.startswith(('harness.fp8', 'harness.providers.ref'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip().splitlines()[-1] == "[]"
