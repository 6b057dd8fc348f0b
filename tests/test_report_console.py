from __future__ import annotations

import os

from harness.report.console import QuietWhenClosed


def test_a_reader_that_is_gone_ends_the_output_and_nothing_else() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as stream:
        console = QuietWhenClosed(file=stream)
        console.print("nobody reads this")
        assert console.quiet
        console.print("nor this")
        stream.write("what is written past the console fails neither")


def test_a_reader_that_stays_gets_everything() -> None:
    reader, writer = os.pipe()
    with open(writer, "w", encoding="utf-8") as stream:
        console = QuietWhenClosed(file=stream)
        console.print("one")
        console.print("two")
        assert not console.quiet
    with open(reader, encoding="utf-8") as stream:
        assert stream.read() == "one\ntwo\n"
