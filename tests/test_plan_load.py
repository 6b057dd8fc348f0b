"""Finding and reading matrix and waiver files; no input makes it raise anything but MatrixErrors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.plan import MatrixErrors, load_matrix
from harness.plan.load import REPOSITORY_CONFIGS, matrix_from_bytes
from tests.support.plan_texts import GOOD, HEAD, WAIVER, errors_of


def test_looked_up_as_given_then_in_configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_matrix("ci.yaml").path == str(REPOSITORY_CONFIGS / "ci.yaml")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "ci.yaml").write_text(GOOD + "name: ours\n")
    assert load_matrix("ci.yaml").name == "ours"
    (tmp_path / "ci.yaml").write_text(GOOD + "name: nearest\n")
    assert (load_matrix("ci.yaml").name, load_matrix(tmp_path / "ci.yaml").path) == ("nearest", "ci.yaml")


def test_the_name_is_the_files_unless_given() -> None:
    assert matrix_from_bytes(GOOD.encode(), Path("some/l0.yaml")).name == "l0"
    assert matrix_from_bytes((GOOD + "name: 2.10\n").encode(), Path("some/l0.yaml")).name == "2.10"


def messages_of_path(path: str | Path) -> str:
    with pytest.raises(MatrixErrors) as caught:
        load_matrix(path)
    return str(caught.value)


def test_no_such_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("harness.plan.load.REPOSITORY_CONFIGS", tmp_path / "repo")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "nightly.yaml").write_text(GOOD)
    tried = "tried nightyl.yaml, configs/nightyl.yaml, repo/nightyl.yaml"
    assert messages_of_path("nightyl.yaml") == (
        f"nightyl.yaml: no such file ({tried}) (did you mean configs/nightly.yaml?)"
    )
    assert messages_of_path("/no/such.yaml") == "/no/such.yaml: no such file (tried /no/such.yaml)"


def test_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    assert messages_of_path("sub") == "sub: is a directory, not a matrix file"
    (tmp_path / "sub" / "a.yaml").write_text(GOOD)
    assert messages_of_path("sub") == "sub: is a directory, not a matrix file (did you mean sub/a.yaml?)"
    (tmp_path / "sub" / "compose.yaml").write_text("services: {}\n")
    (tmp_path / "sub" / "b.yaml").mkdir()
    assert messages_of_path("sub").endswith("(did you mean sub/a.yaml?)")


def test_a_directory_with_several_files_or_with_those_of_others_suggests_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "compose.yaml").write_text("services: {}\n")
    assert messages_of_path("sub") == "sub: is a directory, not a matrix file"
    for name in ("a.yaml", "b.yml"):
        (tmp_path / "sub" / name).write_text(GOOD)
    assert messages_of_path("sub") == "sub: is a directory, not a matrix file"


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By way of the exception: the superuser, who runs tests in containers, may read everything."""

    def refuse(self: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert messages_of_path("m.yaml") == "m.yaml: no permission to read it"


def test_too_large_a_file_is_not_read_whole(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(GOOD + "#" * (1 << 20))
    assert messages_of_path(tmp_path / "m.yaml").endswith("m.yaml: larger than 1048576 bytes, which no matrix needs")


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000], ids=["nul byte", "too long"])
def test_paths_that_no_file_can_have(path: str) -> None:
    assert "cannot be read" in messages_of_path(path)


def test_waiver_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "waivers").mkdir()
    (tmp_path / "waivers" / "te.yaml").write_text("# ours\n" + WAIVER + WAIVER.replace("xfail", "quarantine"))
    (tmp_path / "waivers" / "none.yaml").write_text("# nothing is waived today\n")
    (tmp_path / "m.yaml").write_text(GOOD + "waivers:\n- waivers/te.yaml\n- waivers/none.yaml\n" + WAIVER)
    flat, nested = load_matrix("m.yaml").full.cells
    assert [(one.kind, one.where) for one in flat.expect.waivers] == [
        ("xfail", "waivers/te.yaml:2:3"),
        ("quarantine", "waivers/te.yaml:3:3"),
        ("xfail", "m.yaml:6:3"),
    ]
    assert flat.expect.waivers[0].when == (("nesting", ("flat",)),)
    assert nested.expect.waivers == ()


def test_mistakes_in_waiver_files_stand_at_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("kind: xfail\n")
    (tmp_path / "b.yaml").write_text("- [\n")
    (tmp_path / "c.yaml").write_text(WAIVER.replace("nesting: flat", "nesting: deep") + WAIVER.replace("kind", "knd"))
    (tmp_path / "m.yaml").write_text(GOOD + "waivers: [a.yaml, b.yaml, c.yaml, cc.yaml]\n")
    assert messages_of_path("m.yaml").splitlines() == [
        "a.yaml:1:1: expected a list of waivers, got a mapping",
        "b.yaml:2:1: not YAML: while parsing a flow node expected the node content, but found '<stream end>'",
        "c.yaml:1:3: this waiver matches no cell on any machine: no cell has nesting deep; there is flat, nested",
        "c.yaml:2:3: missing key 'kind'",
        "c.yaml:2:4: unknown key 'knd' in waivers (did you mean kind?)",
        "m.yaml:3:35: no such waiver file: cc.yaml (did you mean c.yaml?)",
    ]


FUZZ = settings(max_examples=150, deadline=None)
TOKENS = (
    *"{}[]:,-?&*!|>'\"%@`#\n",
    "\n  ", "\n- ", "- ", ": ", "schema_version: 1\n", "matrix:", "recipe", "include", "exclude", "adjust", "expect",
    "waivers", "when", "set", "defaults", "budgets", "raises", "shape", "seed", "name", "provider", "reference", "arch",
    "host", "true", "yes", "1", "~", "&a ", "*a", "<<", "mxfp8_block_scaling", "delayed_scaling", "graphs", "---\n",
    '"\\UFFFFFFFF"', '"\\ud800"', "%YAML 1.1\n",
)  # fmt: skip


@FUZZ
@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise_anything_else(raw: bytes) -> None:
    errors_of(raw)


@FUZZ
@given(st.lists(st.sampled_from(TOKENS), max_size=40))
def test_no_yaml_makes_it_raise_anything_else(tokens: list[str]) -> None:
    errors_of(HEAD + "".join(tokens))


@FUZZ
@given(st.data())
def test_no_damage_to_a_real_matrix_makes_it_raise_anything_else(data: st.DataObject) -> None:
    """Each error has a place inside the file, on one line."""
    text = (REPOSITORY_CONFIGS / "ci.yaml").read_text()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 40)))
        text = text[:start] + data.draw(st.sampled_from(("", *TOKENS))) + text[end:]
    try:
        matrix_from_bytes(text.encode(), Path("m.yaml"))
    except MatrixErrors as errors:
        lines = text.splitlines()
        for error in errors.errors:
            assert 1 <= error.line <= len(lines) + 1
            assert error.column >= 1
            assert "\n" not in str(error)


FULL = {
    "schema_version": 1,
    "name": "full",
    "require": "native",
    "defaults": {"provider": {"name": "reference", "emulate": True}, "shape": [128, 128, 128]},
    "matrix": {
        "recipe": ["mxfp8_block_scaling", {"name": "delayed_scaling", "margin": 1}],
        "nesting": ["flat", "deep"],
    },
    "exclude": [{"recipe": "delayed_scaling", "nesting": ["deep"]}],
    "include": [{"recipe": {"name": "mxfp8_block_scaling"}, "seed": 3}],
    "adjust": [{"when": {"shape": [128, 128, 128]}, "set": {"dtype": "float32"}}],
    "budgets": {"graphs": None},
    "expect": [{"when": {"seed": 3}, "raises": {"type": "E", "match": "x"}, "budgets": {"graphs": 1}}],
    "waivers": [
        {
            "kind": "xfail",
            "when": {"arch": ["sm90"]},
            "versions": {"torch": ">=2.12"},
            "reason": "r",
            "url": "https://a.b",
            "owner": "o",
            "expires": "2030-01-01",
        }
    ],
}
LEAVES = st.sampled_from((None, True, 0, -1, 1.5, "", "x", "name", "mxfp8_block_scaling", "reference", "[["))
JUNK = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(("name", "when", "seed", "x", "recipe")), inner)
    ),
    max_leaves=6,
)


def _replaced(value: Any, draw: st.DrawFn, junk: Any) -> Any:
    """``value`` with one of its parts, found by going down at random, replaced."""
    if not isinstance(value, (dict, list)) or not value or draw(st.integers(0, 3)) == 0:
        return junk
    key = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
    changed = _replaced(value[key], draw, junk)
    if isinstance(value, dict):
        return {**value, key: changed}
    return [*value[:key], changed, *value[key + 1 :]]


def test_the_full_matrix_is_good() -> None:
    assert errors_of(yaml.safe_dump(FULL)) == []


@FUZZ
@given(st.data())
def test_no_wrong_type_anywhere_makes_it_raise_anything_else(data: st.DataObject) -> None:
    errors_of(yaml.safe_dump(_replaced(FULL, data.draw, data.draw(JUNK))))
