"""The lexer: tokenizes a text, with a fast path for long lists of VALUES.

sqlglot's tokenizer supports every dialect and needs some microseconds per token. An INSERT has hundreds of thousands of
them: parentheses, commas and literals in their simplest form. One regular expression matches these here; anything it
does not match, and everything outside of VALUES, goes to sqlglot. Both produce the same tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

SHORT = 10_000
"""The length in characters up to which the fast path is not worthwhile."""

_VALUES = re.compile(r"\bVALUES\b", re.IGNORECASE)
_LITERALS = re.compile(
    r"""[ \t\r\n]*(?:
    ([(),])
    | '([^'\\]*(?:''[^'\\]*)*)'(?!['"])
    | ([0-9]{1,300}(?:\.[0-9]{1,300})?(?:[eE][+-]?[0-9]{1,3})?)(?![\w.$])
    | (NULL|TRUE|FALSE|DATE|TIMESTAMP)(?![\w$'"])
    | (-)(?![->])
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_MARKS = {"(": TokenType.L_PAREN, ")": TokenType.R_PAREN, ",": TokenType.COMMA}
_WORDS = {
    "NULL": TokenType.NULL,
    "TRUE": TokenType.TRUE,
    "FALSE": TokenType.FALSE,
    "DATE": TokenType.DATE,
    "TIMESTAMP": TokenType.TIMESTAMPTZ,
}

Part = tuple[list[Token], bool]
"""Tokens, and whether they are plain: they need no merging and no further checks."""


def parts(sql: str, tokenize: Callable[[str], list[Token]], *, limit: int) -> Iterator[Part]:
    """The tokens of a text, in parts. `tokenize` is sqlglot's; it receives at most `limit` characters in total.

    Raises OverflowError if it would receive more.
    """
    at, left, here = 0, limit, _Line(sql)
    while at < len(sql):
        end, plain = len(sql), False
        match = _VALUES.search(sql, at) if len(sql) - at > SHORT else None
        if match is not None:
            head = _quietly(tokenize, sql[at : match.end()])
            plain = bool(head) and head[-1].token_type is TokenType.VALUES and head[-1].end == match.end() - at - 1
            end = match.end() if plain else end
        left -= end - at
        if left < 0:
            raise OverflowError
        here.go_to(at)
        yield _moved(head if plain else tokenize(sql[at:end]), here), False
        at = end
        if plain:
            here.go_to(at)
            rows, at = _literals(sql, here)
            yield rows, True


class _Line:
    """A position in a text that only moves forward, and its line number: each character is examined once."""

    def __init__(self, sql: str) -> None:
        self._sql, self.at, self.before, self.begins = sql, 0, 0, 0

    def go_to(self, at: int) -> None:
        """Move forward to a position."""
        self.before += self._sql.count("\n", self.at, at)
        self.begins = max(self.begins, self._sql.rfind("\n", self.at, at) + 1)
        self.at = at


def _quietly(tokenize: Callable[[str], list[Token]], sql: str) -> list[Token]:
    """The tokens of the first part of a text; none if it ends inside a token."""
    try:
        return tokenize(sql)
    except Exception:  # noqa: BLE001 - the whole text is read next, and says what is wrong
        return []


def _literals(sql: str, here: _Line) -> tuple[list[Token], int]:
    """Parentheses, commas and literals from a position, and the position where they end."""
    tokens: list[Token] = []
    add, match, at, line, begins = tokens.append, _LITERALS.match, here.at, here.before + 1, here.begins
    while (m := match(sql, at)) is not None:
        at, kind = m.end(), m.lastindex
        if kind == 1:
            text = m[1]
            add(Token(_MARKS[text], text, line, at - begins, at - 1, at - 1))
        elif kind == 2:
            text, start = m[2], m.start(2) - 1
            add(Token(TokenType.STRING, text.replace("''", "'"), line, at - begins, start, at - 1))
        elif kind == 3:
            add(Token(TokenType.NUMBER, m[3], line, at - begins, m.start(3), at - 1))
        elif kind == 4:
            text = m[4]
            add(Token(_WORDS[text.upper()], text, line, at - begins, m.start(4), at - 1))
        else:
            add(Token(TokenType.DASH, "-", line, at - begins, at - 1, at - 1))
    return tokens, at


def _moved(tokens: list[Token], here: _Line) -> list[Token]:
    """Tokens of a part of a text that starts here, as tokens of the whole text."""
    if here.at:
        for token in tokens:
            token.start += here.at
            token.end += here.at
            token.col += here.at - here.begins if token.line == 1 else 0
            token.line += here.before
    return tokens
