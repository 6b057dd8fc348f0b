from __future__ import annotations

import json

import pytest

from harness.cli.main import main


@pytest.mark.parametrize(
    ("name", "key"),
    [("matrix", "matrix"), ("results", "verdict"), ("run", "totals"), ("baseline", "cells"), ("doctor", "stack")],
)
def test_each_schema_is_json_and_names_its_keys(name: str, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", name]) == 0
    assert key in json.loads(capsys.readouterr().out)["properties"]


def test_the_matrix_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    main(["schema"])
    default = capsys.readouterr().out
    main(["schema", "matrix"])
    assert capsys.readouterr().out == default
