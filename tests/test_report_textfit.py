import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from harness.report.textfit import printable, shell_lines, shorten, visible, wrap

ANYTHING = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Z", "C"]), max_size=200)
WIDTHS = st.integers(20, 120)


@given(ANYTHING)
def test_printable_is_one_line_of_visible_characters(text) -> None:
    result = printable(text)
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in result)
    assert not set(result) & {"\u2028", "\u2029", "\u202e", "\u200b"}
    result.encode("utf-8")


@given(ANYTHING)
def test_ascii_only_is_ascii(text) -> None:
    assert printable(text, ascii_only=True).isascii()


def test_plain_text_is_left_alone_and_controls_are_shown() -> None:
    assert printable("expected 1, got 2 [red]") == "expected 1, got 2 [red]"
    assert printable("größer\t→ 漢字") == "größer → 漢字"
    assert printable("a\x1b[31mb\u202ec") == "a\\x1b[31mb\\u202ec"
    assert visible("two  blanks\n") == "two  blanks\\n"


@settings(deadline=None)
@given(
    ANYTHING,
    WIDTHS,
    st.sampled_from(["", "  ", " " * 18, "   got      ", "漢", "Words before: "]),
    st.sampled_from([None, "    ", ""]),
)
def test_wrapped_lines_fit_and_nothing_is_lost(text, width, first, rest) -> None:
    text = printable(text)
    lines = wrap(text, width, first=first, rest=rest)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == (first + text).replace(" ", "")


def test_wrap_breaks_between_words_then_behind_commas() -> None:
    assert wrap("one two three", 9) == ["one two", "three"]
    assert wrap("case[recipe=abc,nesting=deep]", 20) == ["case[recipe=abc,", "nesting=deep]"]
    assert wrap("x" * 25, 20) == ["x" * 20, "x" * 5]
    assert wrap("one two", 6, first="- ", rest="+ ") == ["- one", "+ two"]
    assert wrap("", 20, first="  ") == ["  "]
    assert wrap("one", 20, first="a prefix that is too long ") == ["a prefix that is too", "long one"]


@given(ANYTHING, WIDTHS)
def test_shorten_fits(text, width) -> None:
    assert cell_len(shorten(printable(text), width)) <= width


def test_a_long_name_is_cut_behind_an_underscore_where_there_is_no_comma() -> None:
    assert wrap("reset_between_calls", 17, rest="  ") == ["reset_between_", "  calls"]
    assert wrap("a_long_name_with,a_comma", 20) == ["a_long_name_with,", "a_comma"]
    assert wrap("a_longnamewithoutjoints", 20) == ["a_longnamewithoutjoi", "nts"]


def test_shorten_says_that_it_cut() -> None:
    assert shorten("abcdefghij", 7) == "abcd..."
    assert shorten("abcdefg", 7) == "abcdefg"
    assert shorten("abcdefg", 2) == ".."


WORDS = st.lists(
    st.text(st.characters(exclude_characters="\0\n", exclude_categories=["Cs"]), max_size=150), min_size=1, max_size=4
)


@settings(max_examples=100, deadline=None)
@given(WORDS, WIDTHS)
def test_a_shell_reads_the_same_words_from_the_wrapped_command(words, width) -> None:
    lines = shell_lines(words, width)
    assert all(cell_len(line) <= width for line in lines)
    script = "printf '%s\\0' " + "\n".join(lines)
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert done.stdout.decode() == "".join(word + "\0" for word in words)


def test_a_short_command_is_one_line() -> None:
    words = ["python", "runner.py", "--cell", "a[b=1,c='x y']"]
    assert shell_lines(words, 80) == [shlex.join(words)]


@pytest.mark.parametrize("width", [20, 40, 79])
def test_a_long_id_is_continued_without_a_blank(width) -> None:
    word = "toy_linear[" + ",".join(f"axis{i}=value{i}" for i in range(20)) + "]"
    lines = shell_lines(["run", word], width)
    assert not any(line.startswith(" ") for line in lines)
    assert shlex.split("".join(line.removesuffix("\\") for line in lines[1:])) == [word]
