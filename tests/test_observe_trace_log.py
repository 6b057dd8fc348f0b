"""The handler on torch's trace logger: leaves no trace itself, reads reports of every shape."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import harness.fp8
from harness.observe.census import reset_compiler
from harness.observe.sites import own_code
from harness.observe.trace_log import (
    TRACE_LOGGER,
    TraceLog,
    break_reason,
    break_site,
    recompile_reason,
    unsupported_reason,
)

HERE = __file__
REPORT = f"""Graph break in user code at {HERE}:25
Graph Break Reason: Failed to handle graph break gracefully. Skipping the function and falling back to eager. Graph \
break encountered:

Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print` with argument types ['str'] at 0x7f5512345678
  Hint: Avoid calling builtin `print`.

  Developer debug context: builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] False

*** While handling this graph break, another graph break occurred: ***

Graph break under GenericContextWrappingVariable
  Explanation: Attempted to graph break in an active context manager(s) that doesn't support graph breaking.
  Hint: Move the offending context manager(s) to outside the compiled region.

Stack variable source attribution:
  WithExitFunctionVariable() originated from:
  File "{HERE}", line 24

User code traceback:
  File "/somewhere/site-packages/_pytest/python.py", line 1
    run()
  File "{HERE}", line 25, in s_cm
    x=x+1; print("a"); x=x*2

Traceback (most recent call last):
  File "{torch.__file__}", line 1076, in wrapper
"""


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger(TRACE_LOGGER)
    _compile_something()  # torch's own lazy handler removes itself at the first event
    before = (logger.level, logger.propagate, list(logger.handlers))
    yield logger
    logger.setLevel(before[0])
    logger.propagate = before[1]
    logger.handlers[:] = before[2]


def _compile_something() -> None:
    reset_compiler()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))


def test_logger_is_as_before(logger: logging.Logger) -> None:
    """Also when somebody, as TORCH_TRACE does, listens already with settings of their own."""
    text = io.StringIO()
    theirs = logging.StreamHandler(text)
    logger.addHandler(theirs)
    logger.setLevel(logging.WARNING)
    logger.propagate = True
    before = list(logger.handlers)
    with TraceLog() as log:
        assert not logger.propagate
        _compile_something()
    assert (logger.level, logger.propagate, logger.handlers) == (logging.WARNING, True, before)
    assert log.events.starts == [(0, 0)]
    assert text.getvalue()  # theirs went on receiving


def test_logger_is_as_before_after_an_exception(logger: logging.Logger) -> None:
    before = (logger.level, logger.propagate, list(logger.handlers))
    with pytest.raises(KeyError), TraceLog():
        raise KeyError
    assert (logger.level, logger.propagate, logger.handlers) == before


def test_nested_logs_each_see_their_own_stretch(logger: logging.Logger) -> None:
    with TraceLog() as outer:
        _compile_something()
        with TraceLog() as inner:
            _compile_something()
    _compile_something()
    assert (outer.events.compilations, inner.events.compilations) == (2, 1)


def test_ignores_records_that_are_not_structured(logger: logging.Logger) -> None:
    with TraceLog() as log:
        logger.debug("plain")
    assert log.events.compilations == 0


def test_site_is_the_users_line() -> None:
    assert break_site(REPORT) == "tests/test_observe_trace_log.py:25"


def test_site_in_a_library_frame_falls_back_to_the_innermost_user_frame() -> None:
    text = REPORT.replace(f"user code at {HERE}:25", f"user code at {torch.__file__}:7")
    assert break_site(text) == "tests/test_observe_trace_log.py:25"


def test_site_in_a_product_gives_way_to_the_users_own_frame(tmp_path: Path) -> None:
    layer = Path(harness.fp8.__file__).parent / "linear.py"
    text = REPORT.replace(f"user code at {HERE}:25", f"user code at {layer}:7")
    assert break_site(text) == "harness/fp8/linear.py:7"
    with own_code([str(Path(HERE).parent)]):
        assert break_site(text) == "tests/test_observe_trace_log.py:25"
    with own_code([str(tmp_path)]):
        assert break_site(text) == "harness/fp8/linear.py:7"


def test_site_without_any_user_frame_is_what_the_report_says() -> None:
    assert break_site(f"Graph break in user code at {torch.__file__}:7\n") == "torch/__init__.py:7"
    assert break_site("Graph break: no position") == ""


def test_site_of_the_older_report() -> None:
    """Frames that Dynamo gives up on in convert_frame are reported without a first line."""
    text = f'Graph break: will skip\nThe graph break occurred in the following code:\n  File "{HERE}", line 9, in f\n'
    assert break_site(text) == "tests/test_observe_trace_log.py:9"


def test_reason_is_one_line_with_both_breaks_and_no_noise() -> None:
    assert break_reason(REPORT) == (
        "Failed to trace builtin operator: Dynamo does not know how to trace builtin operator `print` with argument "
        "types ['str'] at 0x...; then Graph break under GenericContextWrappingVariable: Attempted to graph break in an "
        "active context manager(s) that doesn't support graph breaking."
    )


def test_reason_of_an_unknown_report_is_its_first_line() -> None:
    assert break_reason("something new\n") == "something new"


def test_unsupported_reason_has_the_form_of_break_reason() -> None:
    body = REPORT.partition("encountered:\n\n")[2].partition("\nStack variable")[0]
    assert unsupported_reason(body) == break_reason(REPORT)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ("0/0: n[0] == 2           # def s_limit(x)  # obs/b.py:38 in f\nUser stack trace:\n  File", "0/0: n[0] == 2"),
        ('["0/1: size mismatch", "0/0: other"]', "0/1: size mismatch"),
        ("[not json", "[not json"),
        ("0/0: ___check_obj_id(x, 0x7f5512345678)", "0/0: ___check_obj_id(x, 0x...)"),
        (None, "no reason given"),
        ("[]", "no reason given"),
    ],
)
def test_recompile_reason(payload: object, expected: str) -> None:
    assert recompile_reason(payload) == expected
