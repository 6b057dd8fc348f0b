"""Every way a matrix file can be wrong, with the exact position and text of the message, and the good twin of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.plan import MatrixErrors
from harness.plan.explain import place_at
from harness.plan.load import matrix_from_bytes
from harness.plan.yamlfile import YamlMap, parse_yaml
from harness.types import NESTINGS, RECIPES, CaseEntry
from tests.support.plan_texts import GOOD, HEAD, WAIVER, axis, errors_of, recipe


@pytest.fixture(autouse=True)
def _registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixed registries: a newly registered case or fault must not change what a message lists."""
    entry = CaseEntry("nowhere:CASE", nestings=NESTINGS)
    monkeypatch.setattr("harness.plan.axes.CASES", {"toy_linear": entry, "mlp": entry})
    monkeypatch.setattr("harness.plan.specs.PROVIDERS", {"reference": "", "torchao": ""})
    monkeypatch.setattr("harness.plan.specs.FAULTS", {"leaky_exit": "", "wrong_scale": ""})


NOT_A_MATRIX = {
    "empty": (b"", ["1:1: is empty: a matrix starts with schema_version: 1"]),
    "only comments": ("# nothing\n", ["1:1: is empty: a matrix starts with schema_version: 1"]),
    "null": ("~\n", ["1:1: is empty: a matrix starts with schema_version: 1"]),
    "a list": ("- a\n", ["1:1: expected a mapping (schema_version: 1, …), got a list"]),
    "a scalar": ("\n hello\n", ["2:2: expected a mapping (schema_version: 1, …), got 'hello'"]),
    "not utf-8": (b"schema_version: 1\nname: caf\xe9\n", ["2:10: not UTF-8: byte 0xe9"]),
    "utf-16": (GOOD.encode("utf-16"), ["1:1: not UTF-8: byte 0xff"]),
    "control character": (HEAD + "name: a\x00b\n", ["2:8: not YAML: unprintable character U+0000"]),
    "unclosed": (
        HEAD + "matrix: {recipe: [a\n",
        ["3:1: not YAML: while parsing a flow sequence expected ',' or ']', but got '<stream end>'"],
    ),
    "tab": (
        HEAD + "matrix:\n\trecipe: [a]\n",
        [
            "3:1: not YAML: while scanning for the next token found character '\\t' that cannot start any token"
            " (indent with spaces)"
        ],
    ),
    "bare range": (  # '>' starts a block scalar, which a flow mapping can't hold
        HEAD + "waivers: [{versions: {torch: >=2.12}}]\n",
        ["2:30: not YAML: while scanning for the next token found character '>' that cannot start any token"],
    ),
    "undefined alias": (HEAD + "name: *who\n", ["2:7: not YAML: found undefined alias 'who'"]),
    "two documents": (GOOD + "---\nx: 1\n", ["3:1: a second YAML document starts here: a matrix is one document"]),
    "depth bomb": (HEAD + "a: " + "[" * 100_000, ["2:35: not YAML: nested deeper than 32 levels"]),
    "alias of itself": (axis("seed: &s [1, *s]"), ["2:16: an anchor that contains an alias of itself"]),
    "alias bomb": (
        HEAD
        + "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
        + "".join(f"{b}: &{b} [{','.join(['*' + a] * 10)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
        ["2:24: stands for more than 100000 values once its aliases are expanded"],
    ),
    "escape beyond unicode": (
        HEAD + 'name: "\\UFFFFFFFF"\n',
        ["2:10: not YAML: an escape or a version number out of range"],
    ),
    "too large": ("#" * (1 << 20) + "\n" + GOOD, [" larger than 1048576 bytes, which no matrix needs"]),
}

KEYS = {
    "duplicate key": (GOOD + "name: a\nname: b\n", ["4:1: duplicate key 'name', first given at line 3"]),
    "duplicate axis": (axis("seed: [1], seed: [2]"), ["2:21: duplicate key 'seed', first given at line 2"]),
    "duplicate deep": (
        recipe("{name: delayed_scaling, margin: 1, margin: 2}"),
        ["2:54: duplicate key 'margin', first given at line 2"],
    ),
    "merge key": (
        GOOD + "defaults: {<<: {seed: 1}}\n",
        ["3:12: merge keys (<<) are not supported: write the keys out"],
    ),
    "list as key": (GOOD + "? [a]\n: 1\n", ["3:3: a key must be a name, not a list or a mapping"]),
    "tag": (
        "schema_version: !!int 1\nmatrix: {recipe: [mxfp8_block_scaling]}\n",
        ["1:17: tag 'tag:yaml.org,2002:int': tags are not used here, write the plain value"],
    ),
    "python tag": (
        GOOD + "name: !!python/name:os.system x\n",
        ["3:7: tag 'tag:yaml.org,2002:python/name:os.system': tags are not used here, write the plain value"],
    ),
    "unknown key": (GOOD + "exlude: []\n", ["3:1: unknown key 'exlude' (did you mean exclude?)"]),
    "nothing near": (GOOD + "zzz: []\n", ["3:1: unknown key 'zzz'"]),
    "axis at top": (
        GOOD + "recipe: [mxfp8_block_scaling]\n",
        ["3:1: axis 'recipe' belongs under matrix (its values) or defaults (one value)"],
    ),
    "unknown axis": (axis("nestng: [flat]"), ["2:10: unknown axis 'nestng' in matrix (did you mean nesting?)"]),
    "unknown axis in when": (
        GOOD + "adjust: [{when: {recipes: mxfp8_block_scaling}, set: {sed: 1}}]\n",
        [
            "3:18: unknown axis 'recipes' in when (did you mean recipe?)",
            "3:55: unknown axis 'sed' in set (did you mean seed?)",
        ],
    ),
    "unknown budget": (
        GOOD + "budgets: {graph_break: 0}\n",
        ["3:11: unknown key 'graph_break' in budgets (did you mean graph_breaks?)"],
    ),
    "no schema_version": ("matrix: {recipe: [mxfp8_block_scaling]}\n", ["1:1: missing key 'schema_version'"]),
    "other schema_version": (
        "schema_version: 2\nmatrix: {recipe: [mxfp8_block_scaling]}\n",
        ["1:17: schema_version 2 is not known: this version of the harness reads 1"],
    ),
}

TYPES = {
    "quoted integer": (
        "schema_version: '1'\nmatrix: {recipe: [mxfp8_block_scaling]}\n",
        ["1:17: expected an integer, got the string '1': remove the quotes"],
    ),
    "yes": (
        axis("fullgraph: [yes, off]"),
        [
            "2:22: expected true or false, got 'yes' (did you mean true?)",
            "2:27: expected true or false, got 'off' (did you mean false?)",
        ],
    ),
    "True": (axis("dynamic: [True]"), ["2:20: expected true or false, got 'True' (did you mean true?)"]),
    "quoted boolean": (
        axis("dynamic: ['true']"),
        ["2:20: expected true or false, got the string 'true': remove the quotes"],
    ),
    "underscored integer": (axis("seed: [9_0]"), ["2:17: expected an integer, got '9_0'"]),
    "octal": (axis("seed: [010]"), ["2:17: expected an integer, got '010'"]),
    "float": (axis("seed: [1.0]"), ["2:17: expected an integer, got '1.0'"]),
    "negative seed": (axis("seed: [-1]"), ["2:17: expected at least 0, got '-1'"]),
    "huge seed": (
        axis("seed: [9223372036854775808]"),
        ["2:17: expected less than 9223372036854775808, got '9223372036854775808'"],
    ),
    "scalar for a list": (axis("seed: 1"), ["2:16: expected a list of values, got '1': write [1]"]),
    "list for a scalar": (GOOD + "defaults: {backend: [eager]}\n", ["3:21: expected a backend, got a list"]),
    "nothing": (GOOD + "exclude:\n", ["3:9: expected a list of entries, got nothing: start each entry with '- '"]),
    "mapping for entries": (
        GOOD + "exclude: {nesting: flat}\n",
        ["3:10: expected a list of entries, got a mapping: start each entry with '- '"],
    ),
    "scalar for a mapping": (GOOD + "budgets: 3\n", ["3:10: expected a mapping, got '3'"]),
    "empty axis": (axis("seed: []"), ["2:16: an empty list: at least one value is needed"]),
    "doubled value": (axis("seed: [1, 2, 1]"), ["2:23: this value stands in the list already"]),
    "doubled recipe": (
        recipe("mxfp8_block_scaling, {name: mxfp8_block_scaling}"),
        ["2:40: this value stands in the list already"],
    ),
    "short shape": (
        axis("shape: [[1, 2]]"),
        ["2:18: expected a shape [M, K, N] of three positive integers, got 2 values"],
    ),
    "shape of zero": (axis("shape: [[16, 0, 16]]"), ["2:23: expected at least 1, got '0'"]),
    "flat shape list": (
        axis("shape: [16, 16, 16]"),
        [f"2:{column}: expected a shape [M, K, N] of three positive integers, got '16'" for column in (18, 22, 26)],
    ),
    "shape in a pattern": (
        GOOD + "exclude: [{shape: [16, x, 16]}]\n",
        ["3:24: expected an integer, got 'x'"],
    ),
    "negative budget": (GOOD + "budgets: {graphs: -1}\n", ["3:19: expected at least 0, got '-1'"]),
    "name": (
        GOOD + "name: a/b\n",
        ["3:7: name 'a/b': letters, digits, '.', '_' and '-' only, as it names files"],
    ),
    "surrogate": (
        GOOD + "waivers:\n" + WAIVER.replace("known", '"\\ud800"'),
        ["4:48: half of a surrogate pair is not text: the string '\\ud800'"],
    ),
    "require": (GOOD + "require: traces\n", ["3:10: unknown evidence level 'traces' (did you mean traced?)"]),
}

NAMES = {
    "recipe": (recipe("mxfp8"), ["2:19: unknown recipe 'mxfp8' (did you mean mxfp8_block_scaling?)"]),
    "class name as recipe": (
        recipe("Float8CurrentScaling"),
        ["2:19: unknown recipe 'Float8CurrentScaling' (did you mean float8_current_scaling?)"],
    ),
    "recipe in a mapping": (
        recipe("{name: delayed}"),
        ["2:26: unknown recipe 'delayed' (did you mean delayed_scaling?)"],
    ),
    "recipe without a name": (
        recipe("{margin: 1}"),
        ["2:19: missing key 'name': a recipe with fields is {name: …, field: …}"],
    ),
    "recipe as list": (
        recipe("[mxfp8_block_scaling]"),
        ["2:19: expected a recipe (a name, or {name: …, field: …}), got a list"],
    ),
    "recipe field": (
        recipe("{name: delayed_scaling, amax_history: 3}"),
        ["2:43: unknown delayed_scaling field 'amax_history' (did you mean amax_history_len?)"],
    ),
    "field of another recipe": (
        recipe("{name: mxfp8_block_scaling, margin: 3}"),
        ["2:47: unknown mxfp8_block_scaling field 'margin': one of fp8_format, scale_rounding"],
    ),
    "field type": (
        recipe("{name: delayed_scaling, amax_history_len: 0, fp8_format: E5M2}"),
        ["2:61: expected at least 1, got '0'", "2:76: unknown format 'E5M2': one of HYBRID, E4M3"],
    ),
    "epsilon": (
        recipe("{name: float8_current_scaling, amax_epsilon: .inf}"),
        ["2:64: expected a finite number, got '.inf'"],
    ),
    "epsilon beyond floats": (
        recipe("{name: float8_current_scaling, amax_epsilon: 1e999}"),
        ["2:64: expected a finite number, got '1e999'"],
    ),
    "case": (axis("case: [toy_liner]"), ["2:17: unknown case 'toy_liner' (did you mean toy_linear?)"]),
    "arch": (axis("arch: [sm91]"), ["2:17: unknown architecture 'sm91' (did you mean sm90?)"]),
    "arch by product name": (
        axis("arch: [hopper]"),
        ["2:17: unknown architecture 'hopper': one of host, cpu, sm89, sm90, sm100, sm103, sm120"],
    ),
    "backend": (axis("backend: [indctor]"), ["2:20: unknown backend 'indctor' (did you mean inductor?)"]),
    "dtype": (axis("dtype: [bf16]"), ["2:18: unknown dtype 'bf16' (did you mean bfloat16?)"]),
    "data": (axis("data: [heavy-tailed]"), ["2:17: unknown kind of data 'heavy-tailed' (did you mean heavy_tailed?)"]),
    "provider": (axis("provider: [refernce]"), ["2:21: unknown provider 'refernce' (did you mean reference?)"]),
    "fault": (
        axis("provider: [reference+leaky_exits]"),
        ["2:21: unknown fault 'leaky_exits' (did you mean leaky_exit?)"],
    ),
    "fault twice": (
        axis("provider: [{name: reference+leaky_exit+leaky_exit}]"),
        ["2:28: fault 'leaky_exit' is named twice"],
    ),
    "provider setting": (
        axis("provider: [{name: reference, emulat: true}]"),
        ["2:39: unknown reference field 'emulat' (did you mean emulate?)"],
    ),
    "setting of a provider without any": (
        axis("provider: [{name: torchao, emulate: true}]"),
        ["2:37: unknown torchao field 'emulate': it has none"],
    ),
    "provider's name": (axis("provider: [{name: [a]}]"), ["2:28: expected a provider's name, got a list"]),
}

ENTRIES = {
    "exclude that matches nothing": (
        GOOD + "exclude: [{nesting: [deep, sequential]}]\n",
        [
            "3:11: this exclude matches no cell of the product: no cell has nesting deep or sequential;"
            " there is flat, nested"
        ],
    ),
    "exclude that never meets": (
        HEAD + "matrix: {recipe: [mxfp8_block_scaling], seed: [1, 2], nesting: [flat, deep]}\n"
        "exclude: [{seed: 1}, {seed: 1, nesting: deep}, {seed: 2, nesting: nested}]\n",
        ["3:48: this exclude matches no cell of the product: no cell has nesting nested; there is flat, deep"],
    ),
    "exclude of another provider": (
        GOOD + "exclude: [{provider: reference+leaky_exit}]\n",
        [
            "3:11: this exclude matches no cell of the product: no cell has provider reference+leaky_exit;"
            " there is reference"
        ],
    ),
    "exclude by fields": (
        recipe("{name: delayed_scaling, margin: 1}, mxfp8_block_scaling")
        + "exclude: [{recipe: {name: delayed_scaling, margin: 2}}]\n",
        [
            "3:11: this exclude matches no cell of the product: no cell has recipe delayed_scaling(margin=2);"
            " there is delayed_scaling(margin=1), mxfp8_block_scaling"
        ],
    ),
    "exclude of an architecture that host may be": (
        GOOD + "exclude: [{arch: sm90}]\n",
        ["3:11: this exclude matches no cell of the product: no cell has arch sm90; there is host"],
    ),
    "exclude without a product": (
        HEAD + "include: [{recipe: mxfp8_block_scaling}]\nexclude: [{seed: 0}]\n",
        ["3:11: this exclude matches no cell of the product: there are no cells to match"],
    ),
    "exclude of nothing": (GOOD + "exclude: [{}]\n", ["3:11: empty: name at least one axis"]),
    "everything excluded": (GOOD + "exclude: [{seed: 0}]\n", ["3:10: no cells: every cell of the product is excluded"]),
    "no cells": (
        HEAD + "defaults: {recipe: mxfp8_block_scaling}\n",
        ["1:1: no cells: list the values of an axis under matrix, or add cells under include"],
    ),
    "no axes": (HEAD + "matrix: {}\n", ["2:9: empty: name at least one axis"]),
    "no recipe": (
        HEAD + "matrix: {nesting: [flat]}\n",
        ["2:9: no recipe: name at least one, under matrix or under defaults"],
    ),
    "no recipe in include": (
        GOOD + "include: [{nesting: deep}]\n",
        ["3:11: no recipe: this cell names none, and neither does defaults"],
    ),
    "include that is there": (
        GOOD + "include: [{recipe: mxfp8_block_scaling, nesting: nested}]\n",
        [
            "3:11: doubles the cell that line 2 gives: toy_linear[provider=reference,recipe=mxfp8_block_scaling,"
            "nesting=nested,inner=float8_current_scaling]"
        ],
    ),
    "include twice": (
        GOOD + "include:\n- {recipe: mxfp8_block_scaling, seed: 1}\n- {recipe: mxfp8_block_scaling, seed: 1}\n",
        ["5:3: doubles the cell that line 4 gives: toy_linear[provider=reference,recipe=mxfp8_block_scaling,seed=1]"],
    ),
    "adjust that makes cells alike": (
        GOOD + "adjust: [{when: {nesting: nested}, set: {nesting: flat}}]\n",
        ["3:10: doubles the cell that line 2 gives: toy_linear[provider=reference,recipe=mxfp8_block_scaling]"],
    ),
    "adjust that matches nothing": (
        GOOD + "adjust: [{when: {dtype: float32}, set: {seed: 1}}]\n",
        ["3:10: this adjust matches no cell: no cell has dtype float32; there is bfloat16"],
    ),
    "adjust without set": (GOOD + "adjust: [{when: {nesting: flat}}]\n", ["3:10: missing key 'set'"]),
    "expect that matches nothing": (
        GOOD + "expect: [{when: {recipe: delayed_scaling}, raises: {type: E, match: x}}]\n",
        ["3:10: this expect matches no cell: no cell has recipe delayed_scaling; there is mxfp8_block_scaling"],
    ),
    "expect of nothing": (
        GOOD + "expect: [{when: {nesting: flat}}]\n",
        ["3:10: expects nothing: give it raises or budgets"],
    ),
    "regex": (
        GOOD + "expect: [{when: {nesting: flat}, raises: {type: E, match: '('}}]\n",
        ["3:59: not a regular expression: missing ), unterminated subpattern at position 0"],
    ),
    "regex that matches anything": (
        GOOD + "expect: [{when: {nesting: flat}, raises: {type: E, match: ''}}]\n",
        ["3:59: expected text, got an empty string"],
    ),
    "exception class and phase": (
        GOOD + "expect: [{when: {nesting: flat}, raises: {type: 3x, match: a, phase: comp}}]\n",
        [
            "3:49: expected the name of an exception class, got '3x'",
            "3:70: unknown phase 'comp' (did you mean compile?)",
        ],
    ),
    "too many cells": (
        HEAD
        + f"matrix: {{recipe: [mxfp8_block_scaling], seed: {list(range(400))}, shape: "
        + str([[16 * i, 16, 16] for i in range(1, 301)])
        + "}\n",
        ["2:9: 120000 cells, more than the 100000 that one matrix may have"],
    ),
}

WAIVERS = {
    "all fields": (
        GOOD + "waivers: [{kind: xfale, when: {nesting: flat}, versions: {torch: 2.12, tee: '1'}, reason: '',"
        " url: www, expires: 2026-02-30}]\n",
        [
            "3:11: missing key 'owner'",
            "3:18: unknown kind of waiver 'xfale' (did you mean xfail?)",
            "3:66: not a PEP 440 version range: '2.12': write '==2.12' or '>=…'",
            "3:72: unknown key 'tee' in versions (did you mean te?)",
            "3:91: expected text, got an empty string",
            "3:100: expected a URL (https://…), got 'www'",
            "3:114: not a date: '2026-02-30' (day is out of range for month)",
        ],
    ),
    "checks": (
        GOOD + "waivers:\n" + WAIVER.replace("reason", "checks: [refusal], reason"),
        ["4:49: expected the name of a check, such as error.refusal, got 'refusal'"],
    ),
    "no checks": (
        GOOD + "waivers:\n" + WAIVER.replace("reason", "checks: [], reason"),
        ["4:48: an empty list: at least one value is needed"],
    ),
    "spelling of a date": (
        GOOD + "waivers:\n" + WAIVER.replace("2030-01-01", "20300101"),
        ["4:103: expected a date YYYY-MM-DD, got '20300101'"],
    ),
    "host": (
        GOOD + "waivers:\n" + WAIVER.replace("nesting: flat", "arch: host"),
        ["4:30: a waiver names the architecture that 'host' turns out to be: cpu, sm90, …, never host"],
    ),
    "case and variant of a waiver": (
        GOOD + "waivers:\n" + WAIVER.replace("nesting: flat", "case: toy_liner, variant: hole"),
        [
            "4:30: unknown case 'toy_liner' (did you mean toy_linear?)",
            "4:50: unknown variant 'hole' (did you mean whole?)",
        ],
    ),
    "unknown cases in a waiver": (
        GOOD + "waivers:\n" + WAIVER.replace("nesting: flat", "case: [stack, disabled]"),
        ["4:31: unknown case 'stack': one of toy_linear, mlp", "4:38: unknown case 'disabled': one of toy_linear, mlp"],
    ),
    "no cell on any machine": (
        axis("arch: [sm90, cpu]") + "waivers:\n" + WAIVER.replace("nesting: flat", "arch: sm89"),
        ["4:3: this waiver matches no cell on any machine: no cell has arch sm89; there is sm90, cpu"],
    ),
    "when missing": (
        GOOD + "waivers:\n" + WAIVER.replace("when: {nesting: flat}, ", ""),
        ["4:3: missing key 'when'"],
    ),
    "no such file": (GOOD + "waivers: [nowhere/te.yaml]\n", ["3:11: no such waiver file: nowhere/te.yaml"]),
    "null": (GOOD + "waivers: [~]\n", ["3:11: expected a mapping, got nothing"]),
}

TABLES = {
    "file": NOT_A_MATRIX,
    "keys": KEYS,
    "types": TYPES,
    "names": NAMES,
    "entries": ENTRIES,
    "waivers": WAIVERS,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [pytest.param(*case, id=f"{table}-{name}") for table, cases in TABLES.items() for name, case in cases.items()],
)
def test_every_mistake_has_its_place_and_words(text: str | bytes, expected: list[str]) -> None:
    assert errors_of(text) == expected


GOOD_TWINS = {
    "byte order mark": b"\xef\xbb\xbf" + GOOD.encode(),
    "windows line ends": GOOD.replace("\n", "\r\n"),
    "one document with its marker": "---\n" + GOOD + "...\n",
    "anchors and aliases": GOOD
    + "adjust: [{when: &flat {nesting: flat}, set: {data: positive}}]\n"
    + "expect: [{when: *flat, budgets: {graphs: 1}}]\n",
    "strings as written": GOOD + "name: 2.10\n",
    "quoted names": HEAD + "matrix: {recipe: [\"mxfp8_block_scaling\"], backend: ['eager']}\n",
    "both booleans": axis("fullgraph: [true, false]"),
    "exponent": recipe("{name: float8_current_scaling, amax_epsilon: 1e-12}"),
    "tiny epsilon": recipe("{name: float8_current_scaling, amax_epsilon: .5e-30}"),
    "integer epsilon": recipe("{name: float8_current_scaling, amax_epsilon: 1}"),
    "unjudged budget": GOOD + "budgets: {recompiles: null, graphs: 2}\n",
    "largest seed": axis("seed: [9223372036854775807]"),
    "faults": axis("provider: [reference+leaky_exit+wrong_scale, {name: reference, emulate: false}]"),
    "one shape in a pattern": GOOD + "expect: [{when: {shape: [128, 256, 128]}, budgets: {graphs: 1}}]\n",
    "shapes in a pattern": GOOD + "exclude: [{shape: [[128, 256, 128]], nesting: flat}]\n",
    "waiver for what host may be": GOOD + "waivers:\n" + WAIVER.replace("nesting: flat", "arch: [sm90, sm100]"),
    "waiver with a range": GOOD + "waivers:\n" + WAIVER.replace("reason", "versions: {torch: '>=2.12,<3'}, reason"),
    "expired waiver": GOOD + "waivers:\n" + WAIVER.replace("2030", "2020"),
    "include only": HEAD + "include: [{recipe: mxfp8_block_scaling}]\n",
    "overlapping excludes": GOOD + "exclude: [{nesting: flat}, {nesting: [flat, deep]}]\n",
}


@pytest.mark.parametrize("text", GOOD_TWINS.values(), ids=GOOD_TWINS)
def test_good_twins_are_accepted(text: str | bytes) -> None:
    assert errors_of(text) == []


def test_mistakes_of_every_stage_are_reported_at_once() -> None:
    text = (
        "schema_version: 3\n"
        "name: a\nname: b\n"
        "matrix: {recipe: [mxfp8_block_scaling], fullgraph: [true, false]}\n"
        "exclude: [{nesting: deep}, {nestin: deep}]\n"
        "budgets: {recompiles: many}\n"
        "expect: [{when: {backend: eager}, raises: {type: E, match: x}}]\n"
    )
    assert errors_of(text) == [
        "1:17: schema_version 3 is not known: this version of the harness reads 1",
        "3:1: duplicate key 'name', first given at line 2",
        "5:11: this exclude matches no cell of the product: no cell has nesting deep; there is flat",
        "5:29: unknown axis 'nestin' in exclude (did you mean nesting?)",
        "6:23: expected an integer, got 'many'",
        "7:10: this expect matches no cell: no cell has backend eager; there is aot_eager",
    ]


def test_a_broken_section_causes_no_second_error() -> None:
    """What can't be judged because something before it is wrong is not judged: no message that a fix makes vanish."""
    broken_include = GOOD + "include: [{recipe: nope}]\nexpect: [{when: {seed: 5}, budgets: {graphs: 1}}]\n"
    assert errors_of(broken_include) == ["3:20: unknown recipe 'nope': one of " + ", ".join(RECIPES)]
    broken_include = GOOD + "include: [{recipe: nope, seed: 5}]\nadjust: [{when: {seed: 5}, set: {seed: 6}}]\n"
    assert errors_of(broken_include) == ["3:20: unknown recipe 'nope': one of " + ", ".join(RECIPES)]
    broken_exclude = GOOD + "exclude: [{nope: 1}]\ninclude: [{recipe: mxfp8_block_scaling}]\n"
    assert errors_of(broken_exclude) == ["3:12: unknown axis 'nope' in exclude"]
    no_recipe = HEAD + "matrix: {seed: [1]}\nexclude: [{seed: 2}]\nadjust: [{when: {seed: 1}, set: {seed: 2}}]\n"
    assert errors_of(no_recipe) == ["2:9: no recipe: name at least one, under matrix or under defaults"]
    too_many = axis(f"seed: {list(range(400))}, shape: {[[16 * i, 16, 16] for i in range(1, 301)]}")
    assert errors_of(too_many + "expect: [{when: {seed: 1}, budgets: {graphs: 1}}]\n") == [
        "2:9: 120000 cells, more than the 100000 that one matrix may have"
    ]
    doubled_axis = axis("nesting: [flat], nesting: [deep]") + "exclude: [{nesting: deep}]\nname: a/b\n"
    assert errors_of(doubled_axis) == [
        "2:27: duplicate key 'nesting', first given at line 2",
        "4:7: name 'a/b': letters, digits, '.', '_' and '-' only, as it names files",
    ]


def test_errors_print_one_line_each_with_the_file() -> None:
    with pytest.raises(MatrixErrors) as caught:
        matrix_from_bytes(axis("seed: [x], nestng: [a]").encode(), Path("configs/m.yaml"))
    assert str(caught.value).splitlines() == [
        "configs/m.yaml:2:17: expected an integer, got 'x'",
        "configs/m.yaml:2:21: unknown axis 'nestng' in matrix (did you mean nesting?)",
    ]
    first = caught.value.errors[0]
    assert (first.file, first.line, first.column, first.nearest) == ("configs/m.yaml", 2, 17, None)


def test_an_aliased_mistake_is_one_mistake() -> None:
    assert errors_of(GOOD + "exclude: [&e {nestin: flat}, *e, *e]\n") == [
        "3:15: unknown axis 'nestin' in exclude (did you mean nesting?)"
    ]


def test_a_position_that_the_file_does_not_hold_is_told_at_the_list() -> None:
    """A validator may lengthen a list: what is wrong with an item that it added has no place of its own."""
    document = parse_yaml("faults: [a, b]\n", "own.yaml").value
    assert isinstance(document, YamlMap)
    assert place_at(document, ("faults", 1)).column == 13
    assert place_at(document, ("faults", 2)).column == place_at(document, ("faults",)).column == 9
