from rich.cells import cell_len

from harness.report.page import MIN_WIDTH, Page


def texts(page):
    return [line.plain for line in page.lines]


def test_paragraphs_wrap_and_are_cleaned() -> None:
    page = Page(20)
    page.say("one two three four five\x07", first="- ", style="bold")
    assert texts(page) == ["- one two three four", "  five\\x07"]
    assert page.lines[0].style == "bold"


def test_flow_breaks_between_items_only() -> None:
    page = Page(24)
    page.flow(["a=1 b=2", "a=1 b=3", "a=2 b=2"], first="Is: ", rest="    ", gap=", ")
    assert texts(page) == ["Is: a=1 b=2, a=1 b=3,", "    a=2 b=2"]


def test_an_item_longer_than_a_line_is_wrapped() -> None:
    page = Page(20)
    page.flow(["short", "x" * 50, "end"], first=">", rest=" ")
    assert all(cell_len(line) <= 20 for line in texts(page))
    assert "".join(texts(page)).count("x") == 50


def test_spans_never_exceed_the_width() -> None:
    page = Page(20)
    page.spans([("a" * 15, "red"), ("b" * 15, "")])
    assert texts(page) == ["a" * 15 + "bb..."]


def test_styled_spans_keep_their_styles() -> None:
    page = Page(20)
    page.spans([("F", "red"), (".", "green")])
    assert [span.style for span in page.lines[0].spans] == ["red", "green"]


def test_a_page_is_never_narrower_than_it_can_be_used() -> None:
    assert Page(1).width == MIN_WIDTH


def test_ascii_pages_hold_only_ascii() -> None:
    page = Page(40, ascii_only=True)
    page.say("größer → ok")
    page.command(["run", "größer"])
    assert all(line.isascii() for line in texts(page))
