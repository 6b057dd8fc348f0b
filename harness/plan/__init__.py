"""YAML file to validated matrix to cells. Nothing here imports torch: planning costs no second and needs no GPU.

``load_matrix`` -> ``expand`` -> ``select``; ``render_plan`` shows the result, ``matrix_json_schema`` is for editors.
"""

from harness.plan.axes import split_values
from harness.plan.errors import MatrixError, MatrixErrors, PlanError, SelectionError
from harness.plan.expand import expand
from harness.plan.ids import axes_from_id, cell_id, parse_id
from harness.plan.load import load_matrix
from harness.plan.nearest import nearest
from harness.plan.render import render_plan
from harness.plan.schema import matrix_json_schema
from harness.plan.select import Selection, select
from harness.plan.types import Matrix, Plan

__all__ = [
    "Matrix",
    "MatrixError",
    "MatrixErrors",
    "Plan",
    "PlanError",
    "Selection",
    "SelectionError",
    "axes_from_id",
    "cell_id",
    "expand",
    "load_matrix",
    "matrix_json_schema",
    "nearest",
    "parse_id",
    "render_plan",
    "select",
    "split_values",
]
