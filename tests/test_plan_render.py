"""``--plan``: complete, with provenance, within 80 columns."""

from __future__ import annotations

from harness.plan import load_matrix, render_plan
from tests.support.plan_strategies import as_matrix

DATA = {
    "schema_version": 1,
    "matrix": {"recipe": ["mxfp8_block_scaling"], "nesting": ["flat", "deep"]},
    "budgets": {"recompiles": None},
    "expect": [{"when": {"nesting": "deep"}, "raises": {"type": "ValueError", "match": "odd", "phase": "run"}}],
    "waivers": [
        {
            "kind": "xfail",
            "when": {"nesting": "deep"},
            "reason": "three levels are too many",
            "url": "https://example.org/7",
            "owner": "me",
            "expires": "2030-01-01",
        }
    ],
}
FLAT = "toy_linear[provider=reference,recipe=mxfp8_block_scaling]"
DEEP = "toy_linear[provider=reference,recipe=mxfp8_block_scaling,nesting=deep,inner=float8_current_scaling]"


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_the_summary_shows_each_setting_once_and_every_id() -> None:
    text = render_plan(as_matrix(DATA).full.cells)
    lines = text.splitlines()
    assert lines[-4:] == [FLAT, DEEP, "", "2 cells"]
    shown = rows(text)
    assert ["recipe", "2", "mxfp8_block_scaling", "<-", "m.yaml:4:5", "matrix.recipe"] in shown
    assert ["nesting", "1", "flat", "<-", "m.yaml:6:5", "matrix.nesting"] in shown
    assert ["1", "deep", "<-", "m.yaml:7:5", "matrix.nesting"] in shown
    assert ["inner", "1", "float8_current_scaling", "<-", "partner", "table"] in shown
    assert ["budgets.recompiles", "2", "not", "judged", "<-", "m.yaml:9:15", "budgets"] in shown
    assert ["raises", "1", "run:", "ValueError", "/odd/", "<-", "m.yaml:14:5", "expect[0]"] in shown
    assert ["waivers[0]", "1", "xfail", "until", "2030-01-01:", "three", "levels", "are", "too", "many"] in shown
    assert ["<-", "m.yaml:18:3", "waivers"] in shown


def test_verbose_shows_each_cell_with_every_setting() -> None:
    text = render_plan(as_matrix(DATA).full.cells, verbose=True)
    flat, deep = text.split(DEEP)
    assert flat.startswith(FLAT + "\n")
    assert "inner" not in flat
    assert [line.split()[0] for line in deep.splitlines()[1:19]] == [
        *("case", "provider", "recipe", "arch", "fullgraph", "nesting", "inner", "backend", "dtype", "shape", "data"),
        *("dynamic", "seed", "budgets.graph_breaks", "budgets.recompiles", "budgets.eager_frames", "budgets.graphs"),
        "raises",
    ]


def test_only_ids_are_wider_than_80_columns() -> None:
    cells = load_matrix("ci.yaml").full.cells
    ids = {cell.id for cell in cells}
    for verbose in (False, True):
        wide = [line for line in render_plan(cells, verbose).splitlines() if len(line) > 80]
        assert set(wide) <= ids


def test_no_cells_and_one_cell() -> None:
    assert render_plan(()) == "no cells"
    assert render_plan(as_matrix(DATA).full.cells[:1]).endswith("\n1 cell")
