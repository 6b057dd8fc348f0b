"""Exceptions as data: nothing of the chain is lost, the site is the user's, the text is the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.observe.census import reset_compiler
from harness.observe.errors import describe_error
from harness.observe.types import ErrorSeen

TEXT = "recipe X is not supported under torch.compile"


class Refusal(RuntimeError):
    """The product's own error class."""


def _caught(fn: Callable[..., Any], *args: Any, phase: str = "compile") -> ErrorSeen:
    try:
        fn(*args)
    except Exception as error:
        return describe_error(error, phase)
    raise AssertionError("nothing was raised")


def _compiled(fn: Callable[..., Any], *, fullgraph: bool = True, backend: Any = "aot_eager") -> ErrorSeen:
    reset_compiler()
    return _caught(torch.compile(fn, fullgraph=fullgraph, backend=backend), torch.ones(3))


def _line_of(fn: Callable[..., Any], offset: int) -> str:
    return f"tests/test_observe_errors.py:{fn.__code__.co_firstlineno + offset}"


def _has(error: ErrorSeen, class_name: str, text: str) -> bool:
    return any(class_name in names.split("<") for names, _ in error.chain) and any(text in m for _, m in error.chain)


def plain(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0]:
        raise Refusal(TEXT)
    return x


@torch.compiler.assume_constant_result
def _refuse() -> bool:
    raise Refusal(TEXT)


def constant(x: torch.Tensor) -> torch.Tensor:
    _refuse()
    return x + 1


def test_plain_raise_under_fullgraph_has_its_text_in_the_chain_only() -> None:
    error = _compiled(plain)
    assert error.type == "Unsupported"
    assert error.chain[0][0].startswith("Unsupported<TorchDynamoException<RuntimeError<Exception")
    assert error.chain[0][1] == error.message
    assert _has(error, "ObservedException", TEXT)
    assert error.site == _line_of(plain, 2)


@pytest.mark.parametrize("fullgraph", [True, False])
def test_refusal_by_constant_result_keeps_the_products_class(fullgraph: bool) -> None:
    """Raised ``from None``: the product's error is a suppressed context and must be found all the same."""
    error = _compiled(constant, fullgraph=fullgraph)
    assert error.type == "InternalTorchDynamoError"
    assert _has(error, "Refusal", TEXT)
    assert error.site == _line_of(constant, 1)


def test_backend_failure_has_its_inner_exception() -> None:
    def failing(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        raise Refusal("no kernel")

    error = _compiled(lambda x: x + 1, backend=failing)
    assert error.type == "BackendCompilerFailed"
    assert [names.partition("<")[0] for names, _ in error.chain] == ["BackendCompilerFailed", "Refusal"]


def test_plain_python_error_is_itself() -> None:
    error = _caught(plain, torch.ones(1), phase="eager")
    assert (error.phase, error.type, error.message) == ("eager", "Refusal", TEXT)
    assert error.chain == (("Refusal<RuntimeError<Exception<BaseException", TEXT),)
    assert error.site == _line_of(plain, 2)


def _wrapped() -> None:
    try:
        raise KeyError("root")
    except KeyError as error:
        raise ValueError("middle") from error


def _rewrapped() -> None:
    try:
        _wrapped()
    except ValueError:
        raise RuntimeError("top")  # noqa: B904  implicit context on purpose


def test_chain_goes_from_raised_to_root() -> None:
    error = _caught(_rewrapped)
    assert [message for _, message in error.chain] == ["top", "middle", "'root'"]


def test_cyclic_chains_end() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert len(describe_error(first, "run").chain) == 2


def test_stack_is_the_same_on_every_machine() -> None:
    stack = _compiled(constant).stack
    assert str(Path(__file__).parents[1]) not in stack
    assert "0x7" not in stack
    assert "site-packages" not in stack
    assert f"{_line_of(_refuse, 2)} in _refuse" in stack
    assert "frame(s) of torch" in stack
    assert stack.index("Refusal: ") < stack.index("InternalTorchDynamoError: ")


def test_advice_of_dynamo_is_left_out() -> None:
    assert "TORCHDYNAMO_VERBOSE" not in _compiled(constant).message


def test_site_is_empty_without_a_user_frame() -> None:
    assert describe_error(ValueError("never raised"), "run").site == ""


def test_long_texts_are_cut() -> None:
    error = describe_error(ValueError("x" * 10_000), "run")
    assert len(error.message) == 4000
    assert len(error.stack) == 4000
