"""SQL text: its tokens, and positions in it. `script.py` splits it into statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from types import FunctionType
from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from millstream.errors import DefinitionError, MillstreamError, Origin, StatementRefused, Unsupported
from millstream.sql.dialects.function_forms import known_tokens
from millstream.sql.parse import lexer


def check_extensible(parser: type) -> None:
    """Reject a compiled parser: Python code cannot extend its class."""
    if not isinstance(getattr(parser, "parse", None), FunctionType):
        raise Unsupported(
            "the compiled build of sqlglot is installed, which cannot be extended with Millstream's SQL",
            hint="remove it: pip uninstall sqlglotc; sqlglot itself stays",
        )


class TooMuchWork(RecursionError):
    """A parser backtracked too often."""


class Bounded(Spark):
    """Spark's dialect with a parser that limits backtracking."""

    class Tokenizer(Spark.Tokenizer):
        """Its tokenizer. The long name of TIMESTAMP_NTZ is one token: sqlglot would read it as TIMESTAMP."""

        KEYWORDS = {**Spark.Tokenizer.KEYWORDS, "TIMESTAMP WITHOUT TIME ZONE": TokenType.TIMESTAMPNTZ}  # noqa: RUF012

    def parser(self, **options: Any) -> SparkParser:
        """A new parser."""
        check_extensible(SparkParser)
        return super().parser(**options)  # type: ignore[return-value]

    class Parser(SparkParser):
        """Its parser. Backtracking doubles the work with every nested parenthesis or JOIN, so steps are counted."""

        STRICT_CAST = True  # as in Spark's ANSI mode: CAST fails where TRY_CAST returns NULL
        _left = 10_000

        def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
            """The trees of some tokens."""
            self._left = 10_000 + 50 * len(raw_tokens)
            return super().parse(known_tokens(raw_tokens), sql)

        def _advance(self, times: int = 1) -> None:
            self._left -= 1
            if self._left < 0:
                raise TooMuchWork
            super()._advance(times)


class Millstream(Bounded):
    """The same dialect, without words that turn everything after them into one token."""

    class Tokenizer(Bounded.Tokenizer):
        """Its tokenizer."""

        COMMANDS = set()  # noqa: RUF012 - sqlglot's own way


DIALECT = Millstream()
LONGEST = 1_000_000
"""The maximum length of a text in characters, not counting rows of plain values."""
LONGEST_ROWS = 16_000_000
"""The maximum length of a text in characters."""
_LOADED = "load rows from a file: COPY table FROM 'file.csv'"

_DIGITS = 1_000
"""The maximum number of digits of a number; DOUBLE has about 300 before the point."""
_WIDEST = 110
_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSED = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


class NodeNotes(dict[str, Any]):
    """The notes of a node of a tree, such as its position in the text. A tree is copied many times while it is bound,
    and these as a whole: to copy them value by value takes most of the time.
    """

    def __deepcopy__(self, memo: object) -> NodeNotes:
        return NodeNotes(self)


@dataclass(frozen=True)
class Text:
    """SQL text, with a name for error messages."""

    sql: str
    name: str = "SQL"

    def origin(self, start: int, end: int) -> Origin:
        """The position from one character to another, with its line underlined."""
        start = max(0, min(start, len(self.sql)))
        line = self.sql.count("\n", 0, start) + 1
        first = self.sql.rfind("\n", 0, start) + 1
        last = self.sql.find("\n", first)
        source_line = self.sql[first : last if last >= 0 else len(self.sql)].rstrip("\r")
        column, width = start - first, max(1, min(end + 1, first + len(source_line)) - start)
        cut = max(0, column - _WIDEST // 2)
        piece = source_line[cut : cut + _WIDEST].replace("\t", " ")
        mark = " " * (column - cut) + "^" * max(1, min(width, len(piece) - (column - cut)))
        margin = f"{line:>5} | "
        return Origin(self.name, line, column + 1, f"{margin}{piece}\n{' ' * (len(margin) - 2)}| {mark}")

    def of_token(self, token: Token) -> Origin:
        """The position of a token."""
        return self.origin(token.start, token.end)

    def of_node(self, node: exp.Expr | None) -> Origin | None:
        """The position of a part of a query: from the first to the last name or number in it, on one line."""
        if node is None:
            return None
        marks = [n.meta for n in node.walk() if "start" in n.meta]
        if not marks:
            return None
        start, end = min(m["start"] for m in marks), max(m["end"] for m in marks)
        return self.origin(start, end)

    @contextmanager
    def at(self, where: exp.Expr | Token | None) -> Iterator[None]:
        """Model errors raised inside this context refer to this position of the text."""
        try:
            yield
        except MillstreamError as error:
            if error.origin is None or not error.origin.column:
                origin = self.of_token(where) if isinstance(where, Token) else self.of_node(where)
                error.origin = origin if origin is not None else error.origin
            raise


@contextmanager
def not_too_deep(text: Text, where: Token | None = None) -> Iterator[None]:
    """Reject a statement that is nested too deeply for Python's recursion limit."""
    try:
        yield
    except RecursionError:
        raise too_deep(text, where) from None


def too_deep(text: Text, where: Token | None = None) -> StatementRefused:
    """The error for a statement that is nested too deeply."""
    return StatementRefused(
        "the statement is nested too deeply",
        hint="split it: a view can read from another view",
        origin=text.of_token(where) if where is not None else None,
    )


def tokens(text: Text) -> list[Token]:
    """The tokens; a name like bids$errors is one token."""
    if len(text.sql) > LONGEST_ROWS:
        raise DefinitionError(f"the text is longer than {LONGEST_ROWS:,} characters", hint=_LOADED)
    result: list[Token] = []
    try:
        for part, plain in lexer.parts(text.sql, lambda sql: list(DIALECT.tokenize(sql)), limit=LONGEST):
            result += part if plain else _merged(text, part)
    except OverflowError:
        raise DefinitionError(
            f"the text is longer than {LONGEST:,} characters, not counting rows of plain values", hint=_LOADED
        ) from None
    except (SqlglotError, ValueError, RecursionError) as error:
        raise DefinitionError(
            "the text cannot be parsed",
            detail="a quote or a comment is left open",
            hint="a string ends with the quote that it begins with: 'it''s'",
            origin=_left_open(text, error),
        ) from None
    return result


def _merged(text: Text, tokens: list[Token]) -> list[Token]:
    """Tokens in which a name like bids$errors, or a string with doubled quotes, is one token."""
    merged: list[Token] = []
    doubled: list[Token] = []
    for token, after in zip_longest(tokens, tokens[1:]):
        if token.token_type is TokenType.NUMBER and len(token.text) > _DIGITS:
            raise DefinitionError(f"a number has more than {_DIGITS:,} digits", origin=text.of_token(token))
        if doubled or (after is not None and _doubled(text, token, after)):
            doubled.append(token)
            if after is None or not _doubled(text, token, after):
                quote = text.sql[token.start]
                merged.append(token_at(TokenType.STRING, quote.join(t.text for t in doubled), doubled[0], token))
                doubled = []
        elif len(merged) > 1 and _glued(merged[-2], merged[-1], token):
            sign, name = merged.pop(), merged.pop()
            merged.append(token_at(TokenType.VAR, f"{name.text}{sign.text}{token.text}", name, token))
        else:
            merged.append(token)
    return merged


def _left_open(text: Text, error: Exception) -> Origin | None:
    """The position of an unclosed quote, if the tokenizer reports one."""
    match = re.search(r"Missing \S+ from (\d+):(\d+)", f"{error} {error.__cause__}")
    if match is None:
        return None
    lines = text.sql.split("\n")[: int(match[1])]
    start = sum(len(line) + 1 for line in lines[:-1]) + int(match[2])
    quote = text.sql.rfind(next((q for q in "'\"`" if q in match[0]), "'"), 0, start + 1)
    return text.origin(max(quote, 0), max(quote, 0))


def _doubled(text: Text, before: Token, token: Token) -> bool:
    """Whether two strings are one with a doubled quote: ``'it''s'``."""
    texts = before.token_type is TokenType.STRING and token.token_type is TokenType.STRING
    return texts and before.end + 1 == token.start and text.sql[before.end] == text.sql[token.start]


def _glued(name: Token, sign: Token, after: Token) -> bool:
    plain = name.token_type is not TokenType.STRING and after.token_type is not TokenType.STRING
    return plain and sign.text == "$" and name.end + 1 == sign.start and sign.end + 1 == after.start


def token_at(kind: TokenType, text: str, first: Token, last: Token | None = None) -> Token:
    """A token at the position of others."""
    return Token(kind, text, first.line, first.col, first.start, (last or first).end)


def closing(tokens: list[Token] | tuple[Token, ...], opening: int) -> int:
    """The position of the parenthesis that closes the one at `opening`; the end if there is none."""
    depth = 0
    for i in range(opening, len(tokens)):
        kind = tokens[i].token_type
        depth += (kind in _OPEN) - (kind in _CLOSED)
        if depth == 0:
            return i
    return len(tokens)


def word(token: Token | None) -> str:
    """A token as a keyword: in upper case; empty for strings and quoted names."""
    quoted = token is None or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
    return "" if quoted else str(token.text).upper()  # type: ignore[union-attr]


def plain_value(node: exp.Expr) -> Any:
    """The value of a literal in Python."""
    if isinstance(node, exp.Neg):
        return -plain_value(node.this)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        if node.is_string:
            return str(node.this)
        return float(node.this) if any(c in node.this for c in ".eE") else int(node.this)
    msg = "no literal"
    raise ValueError(msg)
