"""Hypothesis strategies: matrices that are valid by construction, as plain data and as YAML text."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from cases import CASES
from harness.plan import Matrix
from harness.plan.case_rules import TARGET_CASE
from harness.plan.load import matrix_from_bytes
from harness.types import ARCHES, BACKENDS, DATA_KINDS, DTYPES, NESTINGS, RECIPES

EPSILONS = st.floats(0, 1, allow_nan=False).map(float)
RECIPE_FIELDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "delayed_scaling": {
        "margin": st.integers(-3, 9),
        "fp8_format": st.sampled_from(("HYBRID", "E4M3")),
        "amax_history_len": st.integers(1, 2000),
        "amax_compute_algo": st.sampled_from(("max", "most_recent")),
    },
    "float8_current_scaling": {"power_2_scale": st.booleans(), "amax_epsilon": EPSILONS},
    "float8_block_scaling": {"use_f32_scales": st.booleans(), "amax_epsilon": EPSILONS},
    "mxfp8_block_scaling": {"scale_rounding": st.sampled_from(("ceil", "floor"))},
    "nvfp4_block_scaling": {"disable_2d_quantization": st.booleans()},
    "float8_rowwise_scaling": {"power_2_scale": st.booleans()},
}


@st.composite
def recipes(draw: st.DrawFn) -> Any:
    """A recipe as a matrix writes it: a name, or a mapping."""
    name = draw(st.sampled_from(RECIPES))
    if draw(st.booleans()):
        return name
    return {"name": name, **draw(st.fixed_dictionaries({}, optional=RECIPE_FIELDS[name]))}


PROVIDERS = st.sampled_from(
    ("reference", {"name": "reference", "emulate": True}, {"name": "reference", "emulate": False})
)
TARGET = re.compile(r"[a-z_][a-z0-9_]{0,8}(\.[a-z_][a-z0-9_]{0,8}){0,2}:[A-Za-z_][A-Za-z0-9_]{0,8}")
SIZES = st.integers(1, 99).map(lambda number: 16 * number)
AXIS_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "provider": PROVIDERS,
    "recipe": recipes(),
    "arch": st.sampled_from(ARCHES),
    "fullgraph": st.booleans(),
    "nesting": st.sampled_from(NESTINGS),
    "backend": st.sampled_from(BACKENDS),
    "dtype": st.sampled_from(DTYPES),
    "shape": st.lists(SIZES, min_size=3, max_size=3),
    "data": st.sampled_from(DATA_KINDS),
    "dynamic": st.booleans(),
    "seed": st.integers(0, 2**63 - 1),
}


def _bare(value: Any) -> Any:
    """``{name: x}`` is ``x``: a list that holds both holds one value twice."""
    return value["name"] if isinstance(value, dict) and len(value) == 1 else value


@st.composite
def matrices(draw: st.DrawFn) -> dict[str, Any]:
    """A valid matrix with defaults, lists of values for a few axes, and nothing else."""
    axes = draw(st.lists(st.sampled_from(sorted(AXIS_VALUES)), unique=True, max_size=4))
    axes = [*axes, *(["recipe"] if "recipe" not in axes else [])]
    lists = {axis: draw(st.lists(AXIS_VALUES[axis], min_size=1, max_size=3)) for axis in axes}
    distinct = {axis: [key for key, _ in itertools.groupby(_sorted(values))] for axis, values in lists.items()}
    defaults = draw(
        st.fixed_dictionaries({}, optional={axis: AXIS_VALUES[axis] for axis in ("backend", "shape", "recipe")})
    )
    return {"schema_version": 1, "defaults": defaults, "matrix": distinct}


def _sorted(values: list[Any]) -> list[Any]:
    return sorted((_bare(value) for value in values), key=repr)


@st.composite
def case_entries(draw: st.DrawFn) -> dict[str, Any]:
    """An include entry for any registered case, of one value an axis, that the case has a program for."""
    case = draw(st.sampled_from(sorted(CASES)))
    entry = CASES[case]
    axes = {
        "recipe": recipes().filter(lambda one: (one if isinstance(one, str) else one["name"]) in entry.recipes),
        "nesting": st.sampled_from(entry.nestings),
        **({"variant": st.sampled_from(entry.variants)} if entry.variants else {}),
        **({"target": st.from_regex(TARGET, fullmatch=True)} if case == TARGET_CASE else {}),
    }
    others = {axis: values for axis, values in AXIS_VALUES.items() if axis not in ("recipe", "nesting")}
    return {"case": case, **draw(st.fixed_dictionaries(axes, optional=others))}


def as_matrix(data: dict[str, Any]) -> Matrix:
    """Through YAML text, as a user's file would go."""
    return matrix_from_bytes(yaml.safe_dump(data, sort_keys=False).encode(), Path("m.yaml"))
