"""``-k`` as pytest reads it: checked against pytest's own evaluator."""

from __future__ import annotations

import pytest
from _pytest.mark.expression import Expression
from hypothesis import given
from hypothesis import strategies as st

from harness.plan import SelectionError
from harness.plan.keyword import compile_keyword

ID = "toy_linear[provider=reference,recipe=MXFP8_block_scaling,nesting=nested]"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("", True),
        ("nested", True),
        ("NESTED", True),
        ("mxfp8", True),
        ("deep", False),
        ("not deep", True),
        ("not not deep", False),
        ("nested and deep", False),
        ("nested or deep", True),
        ("deep and deep or nested", True),
        ("nested or deep and deep", True),
        ("(nested or deep) and deep", False),
        ("not (deep or nested)", False),
        ("notdeep", False),
        ("toy_linear[provider", True),
    ],
)
def test_expressions(expression: str, expected: bool) -> None:
    assert compile_keyword(expression)(ID) is expected


WORDS = st.sampled_from(("nested", "deep", "mxfp8", "toy", "x"))
EXPRESSIONS = st.recursive(
    WORDS,
    lambda inner: st.one_of(
        inner.map(lambda one: f"not {one}"),
        inner.map(lambda one: f"({one})"),
        st.tuples(inner, st.sampled_from(("and", "or")), inner).map(" ".join),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS)
def test_agrees_with_pytest(expression: str) -> None:
    theirs = Expression.compile(expression).evaluate(lambda word, **_: word.lower() in ID.lower())
    assert compile_keyword(expression)(ID) == theirs


@given(st.text(alphabet="ab ()andotr=,", max_size=12))
def test_refuses_what_pytest_refuses(expression: str) -> None:
    try:
        Expression.compile(expression)
    except SyntaxError:
        refused = True
    else:
        refused = False
    # pytest 8.3 and newer read name(key=value) as a call, which only -m gives a meaning.
    if "(" in expression and "=" in expression:
        return
    if refused:
        with pytest.raises(SelectionError):
            compile_keyword(expression)
    else:
        compile_keyword(expression)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("nested and", "-k 'nested and': expected a word at column 11"),
        ("(nested", "-k '(nested': expected ')' at column 8"),
        ("nested deep", "-k 'nested deep': unexpected 'deep' at column 8"),
        ("  nested  deep", "-k '  nested  deep': unexpected 'deep' at column 11"),
        ("a & b", "-k 'a & b': unexpected character at column 3"),
        (
            "nesting=nested",
            "-k 'nesting=nested': unexpected character at column 8;"
            " exact settings are selected with --select AXIS=VALUE",
        ),
    ],
)
def test_syntax_errors_say_where(expression: str, message: str) -> None:
    with pytest.raises(SelectionError) as caught:
        compile_keyword(expression)
    assert str(caught.value) == message


def test_depth_is_bounded() -> None:
    with pytest.raises(SelectionError, match="expression too long"):
        compile_keyword("(" * 100_000)
