"""``-k`` for ``--plan``: and, or, not and parentheses over substrings of cell ids, read as pytest reads them.

In a run pytest itself evaluates ``-k``; this is for listing what it would take, without starting pytest.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from harness.plan.errors import SelectionError

Test = Callable[[str], bool]

_TOKEN = re.compile(r"\s*(?:(?P<paren>[()])|(?P<word>[\w:+\-.\[\]\\/]+))")
_MAX_TOKENS = 200  # also bounds the recursion


def compile_keyword(expression: str) -> Test:
    """A predicate on cell ids; the empty expression takes them all.

    Grammar: ``or`` binds weakest, then ``and``, then ``not``; a word is what pytest calls an identifier.

    Raises:
        SelectionError: a syntax error, with the column (from 1) where reading stopped.
    """
    if not expression.strip():
        return lambda cell_id: True
    parser = _Parser(expression)
    test = parser.any_of()
    parser.expect_end()
    return lambda cell_id: test(cell_id.lower())


class _Parser:
    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = self._split(expression)
        self._at = 0

    def _split(self, text: str) -> list[tuple[str, int]]:
        tokens: list[tuple[str, int]] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            found = _TOKEN.match(text, position)
            if found is None or len(tokens) >= _MAX_TOKENS:
                column = position + len(text[position:]) - len(text[position:].lstrip())
                raise self._error("unexpected character" if found is None else "expression too long", column)
            tokens.append((found.group().strip(), found.end() - len(found.group().strip())))
            position = found.end()
        return [*tokens, ("", end)]

    def _error(self, problem: str, position: int) -> SelectionError:
        hint = "; exact settings are selected with --select AXIS=VALUE" if "=" in self._expression else ""
        return SelectionError(f"-k {self._expression!r}: {problem} at column {position + 1}{hint}")

    def _take(self, *words: str) -> bool:
        taken = self._tokens[self._at][0] in words
        self._at += taken
        return taken

    def expect_end(self) -> None:
        word, position = self._tokens[self._at]
        if word:
            raise self._error(f"unexpected {word!r}", position)

    def any_of(self) -> Test:
        tests = [self.all_of()]
        while self._take("or"):
            tests.append(self.all_of())
        return lambda text: any(test(text) for test in tests)

    def all_of(self) -> Test:
        tests = [self.term()]
        while self._take("and"):
            tests.append(self.term())
        return lambda text: all(test(text) for test in tests)

    def term(self) -> Test:
        if self._take("not"):
            test = self.term()
            return lambda text: not test(text)
        if self._take("("):
            inner = self.any_of()
            if not self._take(")"):
                raise self._error("expected ')'", self._tokens[self._at][1])
            return inner
        word, position = self._tokens[self._at]
        if word in ("", "and", "or", ")"):
            raise self._error("expected a word", position)
        self._at += 1
        return lambda text: word.lower() in text
