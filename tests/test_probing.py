"""Documented errors that cases expect: the right one passes, silence and any other are told apart."""

from __future__ import annotations

import pytest

from harness.probing import NotAsDocumented, documented


def test_documented_error_is_swallowed() -> None:
    with documented("LookupError", "no such"):  # a base class counts
        raise KeyError("no such key")


def test_documented_error_deep_in_the_chain() -> None:
    with documented("ValueError", "the cause"):
        try:
            raise ValueError("the cause")
        except ValueError as error:
            raise RuntimeError("wrapped") from error


@pytest.mark.parametrize("error", [ValueError("another text"), TypeError("no such key")])
def test_another_error_is_not_as_documented(error: Exception) -> None:
    with (
        pytest.raises(NotAsDocumented, match="entering: expected ValueError matching 'no such', got"),
        documented("ValueError", "no such", "entering"),
    ):
        raise error


def test_silence_is_not_as_documented() -> None:
    with pytest.raises(NotAsDocumented, match="nothing was raised"), documented("ValueError", "no such"):
        pass


def test_interrupts_pass() -> None:
    with pytest.raises(KeyboardInterrupt), documented("KeyboardInterrupt", ""):
        raise KeyboardInterrupt
