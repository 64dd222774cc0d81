"""The clauses after the type of a column: NOT NULL, COMMENT, PRIMARY KEY. All others are rejected by name."""

from __future__ import annotations

from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from millstream.errors import Unsupported
from millstream.model.types.schema import LENGTHS
from millstream.sql.parse.cursor import Cursor
from millstream.sql.parse.text import word

_REFUSED = {
    "DEFAULT": "write the value in each INSERT, or coalesce(column, value) in a view",
    "CHECK": "let a view take only the rows that match: WHERE condition",
    "UNIQUE": "PRIMARY KEY makes the values of a column unique",
    "COLLATE": "compare upper(column) or lower(column)",
    "GENERATED": "a view can compute more columns",
    "CONSTRAINT": "only PRIMARY KEY and NOT NULL can have a name",
    "REFERENCES": "a JOIN in a view leaves out rows without a match",
    "AUTO_INCREMENT": "write the value in each INSERT",
    "IDENTITY": "write the value in each INSERT",
    "MASK": "leave the column out of views",
    "ENCODE": "leave it out",
    "ON": "leave it out",
}
CLAUSES = frozenset({"NOT", "NULL", "COMMENT", "PRIMARY", "PRIMARY KEY", *_REFUSED})
"""Words that end the type of a column."""


@dataclass(frozen=True)
class Said:
    """The clauses of a column."""

    required: bool = False
    is_key: bool = False


def key_begins(c: Cursor) -> bool:
    """Skip ``[CONSTRAINT name] PRIMARY KEY`` if it comes next. The name is ignored."""
    before = c.at
    if c.peek("CONSTRAINT") and (c.peek("PRIMARY", ahead=2) or c.peek("PRIMARY KEY", ahead=2)):
        c.at += 1
        c.name("constraint")
    if c.accept("PRIMARY", "KEY") or c.accept("PRIMARY KEY"):
        return True
    c.at = before
    return False


def clauses_begin(tokens: tuple[Token, ...]) -> int:
    """The number of tokens that belong to the type of a column."""
    depth = 0
    for i, token in enumerate(tokens):
        keyword = word(token)
        depth += keyword.count("<") + keyword.count("(") - keyword.count(">") - keyword.count(")")
        if i and depth <= 0 and keyword in CLAUSES:
            return i
    return len(tokens)


def read(c: Cursor, *, kept: bool) -> Said:
    """Parse the clauses of a column up to the end; with `kept`, invalid clauses are ignored instead of rejected."""
    required = is_key = False
    while not c.done:
        if c.peek("CONSTRAINT") and c.peek("NOT", "NULL", ahead=2):
            c.at += 1
            c.name("constraint")
        if c.accept("NOT", "NULL"):
            required = True
        elif key_begins(c):
            is_key = True
            c.accept("NOT", "ENFORCED")
        elif c.peek("COMMENT") and c.at + 1 < c.end and c.piece.tokens[c.at + 1].token_type is TokenType.STRING:
            c.at += 2
        elif not c.accept("NULL"):
            if kept:
                break
            keyword = word(c.token)
            if keyword in _REFUSED:
                raise Unsupported(
                    f"{keyword} of a column is not supported", hint=_REFUSED[keyword], origin=c.text.of_token(c.take())
                )
            c.fail("this is not expected here", hint="name TYPE, with NOT NULL, PRIMARY KEY or COMMENT 'text' after it")
    return Said(required, is_key)


def without_lengths(type_text: str) -> str:
    """A type without the lengths of its strings, which older versions accepted and ignored."""
    tree = sqlglot.parse_one(type_text, into=exp.DataType, dialect="spark")
    for part in tree.find_all(exp.DataType):
        if part.expressions and part.this not in LENGTHS:
            part.set("expressions", [])
    return str(tree.sql(dialect="spark"))
