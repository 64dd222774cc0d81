"""A cursor over the tokens of one statement, for Millstream's own grammar."""

from __future__ import annotations

import difflib
from typing import Any, NoReturn

from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from millstream.errors import DefinitionError
from millstream.model.connectors import check_name
from millstream.model.types.duration import Duration
from millstream.sql.parse.script import StatementText
from millstream.sql.parse.text import Text, closing, word

_UNITS = ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK")
_LONG = {"MONTH": 30, "YEAR": 365}


_BEHIND = {
    "ON": "there is no ON CONFLICT: UPDATE the existing row, or DELETE it first",
    "RETURNING": "leave it out, and SELECT the rows afterwards",
    "WITH": "a table is stored in the home; CREATE SOURCE name (columns) FROM LOG('topic') WITH (...) reads records",
    "USING": "leave it out: tables are stored in the home",
    "LOCATION": "leave it out: tables are stored in the home; CREATE SOURCE ... FROM FILES('folder') reads files",
    "PARTITIONED": "leave it out: tables are not partitioned",
    "ORDER": "leave it out: a table has no order",
    "ORDER BY": "leave it out: a table has no order",
    "LIMIT": "leave it out",
}
"""What to write instead of clauses of other databases."""


class Cursor:
    """A position in the tokens of a statement."""

    def __init__(self, piece: StatementText, *, first: int = 0, last: int | None = None) -> None:
        self.piece = piece
        self.text: Text = piece.text
        self.at = first
        self.end = len(piece.tokens) if last is None else last

    @property
    def token(self) -> Token | None:
        """The next token; None at the end."""
        return self.piece.tokens[self.at] if self.at < self.end else None

    @property
    def done(self) -> bool:
        """Whether all tokens were consumed."""
        return self.at >= self.end

    def peek(self, *words: str, ahead: int = 0) -> bool:
        """Whether these words come next."""
        for i, expected in enumerate(words):
            place = self.at + ahead + i
            if place >= self.end or word(self.piece.tokens[place]) != expected:
                return False
        return True

    def accept(self, *words: str) -> bool:
        """Consume these words if they come next."""
        if not self.peek(*words):
            return False
        self.at += len(words)
        return True

    def expect(self, *words: str, hint: str | None = None) -> None:
        """Consume these words; they must come next."""
        for expected in words:
            if not self.accept(expected):
                self.fail(
                    f"{expected} is expected here", hint=hint or "docs/guide/sql.md has an example of each statement"
                )

    def one_of(self, words: tuple[str, ...], what: str) -> str:
        """Consume one of these words; one must come next."""
        for expected in words:
            if self.accept(*expected.split()):
                return expected
        keyword = word(self.token)
        close = difflib.get_close_matches(keyword, words, n=1) if keyword else []
        self.fail(
            f"{what} is expected here",
            hint=f"did you mean {close[0]}?" if close else "one of: " + ", ".join(words),
        )

    def take(self) -> Token:
        """Consume the next token; there must be one."""
        token = self.token
        if token is None:
            self.fail("the statement ends too early", hint="docs/guide/sql.md has an example of each statement")
        self.at += 1
        return token

    def name(self, what: str, *, system: bool = False) -> str:
        """A name; `system` allows one like bids$errors."""
        token = self.take()
        if token.token_type in (TokenType.STRING, TokenType.NUMBER) or not token.text[:1].strip():
            self.at -= 1
            self.fail(f"a name for {'an' if what[0] in 'aeiou' else 'a'} {what} is expected here")
        if not (system and "$" in token.text):
            with self.text.at(token):
                check_name(str(token.text), what)
        return str(token.text)

    def string(self, what: str) -> str:
        """A quoted string."""
        token = self.take()
        if token.token_type is not TokenType.STRING:
            self.at -= 1
            self.fail(f"{what} in quotes is expected here")
        return str(token.text)

    def whole(self, what: str) -> int:
        """An integer."""
        token = self.take()
        if token.token_type is not TokenType.NUMBER or not token.text.isdigit():
            self.at -= 1
            self.fail(f"{what}, a whole number, is expected here", hint="e.g. 7")
        return int(token.text)

    def value(self, what: str) -> Any:
        """A string, a number, TRUE, FALSE, INTERVAL, TIMESTAMP, or a bare word."""
        if self.peek("INTERVAL"):
            return self.interval(what)
        if self.accept("TIMESTAMP"):
            return self.string("a time")
        negative = self.accept("-")
        token = self.take()
        if token.token_type is TokenType.STRING and not negative:
            return str(token.text)
        if token.token_type is TokenType.NUMBER:
            try:
                number = float(token.text) if any(c in token.text for c in ".eE") else int(token.text)
            except ValueError:
                self.at -= 1
                self.fail(f"a value for {what} is expected here")
            return -number if negative else number
        keyword = word(token)
        if negative or not (keyword[:1].isalpha() or keyword[:1] == "_"):
            self.at -= 1
            self.fail(f"a value for {what} is expected here")
        return {"TRUE": True, "FALSE": False}.get(keyword, str(token.text))

    def interval(self, what: str) -> Duration:
        """``INTERVAL '4' SECOND``, ``INTERVAL 4 SECONDS``, ``INTERVAL '1 minute 30 seconds'`` or only the string."""
        first = self.token
        had = self.accept("INTERVAL")
        token = self.take()
        amount = str(token.text)
        if token.token_type not in (TokenType.STRING, TokenType.NUMBER) or (
            not had and token.token_type is TokenType.NUMBER
        ):
            self.at -= 1
            self.fail(f"{what} is expected here", hint="e.g. INTERVAL '10' SECOND")
        unit = word(self.token)
        if had and unit.removesuffix("S") in (*_UNITS, *_LONG):
            self.at += 1
            bare = unit.removesuffix("S")
            days = _LONG.get(bare)
            if days is not None:
                self.at -= 1
                self.fail(f"{what} in {unit} has no fixed length", hint="write it in days")
            amount = f"{amount} {bare.lower()}"
        with self.text.at(first):
            return Duration.of(amount, what=what)

    def bracketed(self) -> Cursor:
        """A cursor over the contents of the parentheses that open here; this cursor moves past them."""
        if not self.peek("("):
            keyword = word(self.token)
            hint = "CREATE TABLE name (columns), then INSERT INTO name SELECT ..." if keyword == "AS" else None
            self.fail("( is expected here", hint=hint or "name the columns or values in brackets")
        close = closing(self.piece.tokens, self.at)
        if close >= self.end:
            self.fail("this bracket is never closed", hint="count the brackets")
        inner = Cursor(self.piece, first=self.at + 1, last=close)
        self.at = close + 1
        return inner

    def until_comma(self) -> tuple[Token, ...]:
        """The tokens up to the next comma on this level; the comma is not consumed."""
        first, depth = self.at, 0
        while self.at < self.end:
            token = self.piece.tokens[self.at]
            if token.token_type is TokenType.COMMA and depth == 0:
                break
            depth += (word(token) in ("(", "<", "[")) - (word(token) in (")", ">", "]"))
            self.at += 1
        return self.piece.tokens[first : self.at]

    def finish(self) -> None:
        """Check that nothing follows."""
        if not self.done:
            self.fail(
                "this is not expected here", hint=_BEHIND.get(word(self.token), "the statement is complete before it")
            )

    def fail(self, message: str, *, hint: str | None = None) -> NoReturn:
        """Reject the statement at this position."""
        token = self.token or self.piece.tokens[min(self.end, len(self.piece.tokens)) - 1]
        origin = self.text.of_token(token)
        if self.token is None:
            origin = self.text.origin(token.end + 1, token.end + 1)
        raise DefinitionError(message, hint=hint, origin=origin)
