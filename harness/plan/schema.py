"""The JSON Schema of matrix files, for editors, generated from the models that validate them."""

from __future__ import annotations

import json
from typing import Any

from harness.plan.models import MatrixModel
from harness.types import SCHEMA_VERSION


def matrix_json_schema() -> dict[str, Any]:
    """A JSON Schema (draft 2020-12). It accepts every valid matrix; names of cases, providers and faults are left open,
    because they can be registered, and what only the whole plan shows (an exclude for nothing) is beyond a schema."""
    schema = _tidy(MatrixModel.model_json_schema())
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"FP8 compile harness: matrix, schema_version {SCHEMA_VERSION}",
    }
    return {**head, **schema}


def schema_text() -> str:
    """The text of the published copy, docs/schemas/matrix.schema.json."""
    return json.dumps(matrix_json_schema(), indent=2, ensure_ascii=False) + "\n"


def _tidy(value: Any) -> Any:
    """The same schema without what differs from one pydantic release to the next, and without null for absent keys."""
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _tidy(item) for key, item in value.items() if (key, item) != ("default", None)}
    if isinstance(kept.get("title"), str):
        del kept["title"]  # made from the name, says nothing more
    if "const" in kept and isinstance(kept.get("type"), str):
        del kept["type"]
    if len(kept.get("allOf", ())) == 1:
        kept = {**kept.pop("allOf")[0], **kept}
    return kept
