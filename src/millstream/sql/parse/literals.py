"""Converts SQL literals to Python values, so that the rows of VALUES need neither a tree nor a query each.

An INSERT may have hundreds of thousands of values, and parsing blocks all other threads of the process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from sqlglot import exp
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

NOT_LITERAL = object()
"""The result of `literal` for an expression that has to be computed."""

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMES = (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ)


_PLAIN_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?|[0-9]{1,30}(\.[0-9]{1,30})?[eE][+-]?[0-9]{1,2}")
_OPEN, _CLOSED, _COMMA = TokenType.L_PAREN, TokenType.R_PAREN, TokenType.COMMA
_NUMBER, _STRING, _MINUS = TokenType.NUMBER, TokenType.STRING, TokenType.DASH
_DATE, _TIMESTAMP = TokenType.DATE, TokenType.TIMESTAMPTZ
_WORDS = {TokenType.NULL: None, TokenType.TRUE: True, TokenType.FALSE: False}


def plain_row(tokens: Sequence[Token], at: int, end: int) -> tuple[tuple[Any, ...], int] | None:
    """The values of a row of literals that starts at a token, and the position after it; None for any other row."""
    if at >= end or tokens[at].token_type is not _OPEN:
        return None
    values = []
    at += 1
    while at + 1 < end:
        token = tokens[at]
        value = _one(token)
        if value is NOT_LITERAL:
            at += 1
            value = _two(token.token_type, tokens[at])
        if value is NOT_LITERAL or token.comments or tokens[at].comments or at + 1 >= end:
            return None
        values.append(value)
        kind = tokens[at + 1].token_type
        at += 2
        if kind is _CLOSED:
            return tuple(values), at
        if kind is not _COMMA:
            return None
    return None


def plain(tokens: Sequence[Token]) -> Any:
    """The value of one literal in its simplest form; NOT_LITERAL for everything else."""
    if not 0 < len(tokens) < 3 or any(t.comments for t in tokens):
        return NOT_LITERAL
    return _one(tokens[0]) if len(tokens) == 1 else _two(tokens[0].token_type, tokens[1])


def _one(token: Token) -> Any:
    kind = token.token_type
    if kind is _NUMBER:
        return _plain_number(token.text)
    return token.text if kind is _STRING else _WORDS.get(kind, NOT_LITERAL)


def _two(kind: TokenType, token: Token) -> Any:
    """A literal of two tokens: ``-1``, ``DATE '2026-01-01'`` or ``TIMESTAMP '2026-01-01 12:00:00'``."""
    if kind is _MINUS and token.token_type is _NUMBER:
        return _negative(_plain_number(token.text))
    if kind is _DATE and token.token_type is _STRING:
        return _day(token.text)
    if kind is _TIMESTAMP and token.token_type is _STRING:
        return _instant(token.text)
    return NOT_LITERAL


def _plain_number(text: str) -> Any:
    if text.isdecimal():
        return int(text) if text.isascii() else NOT_LITERAL
    return _number(text) if _PLAIN_NUMBER.fullmatch(text) else NOT_LITERAL


def _negative(value: Any) -> Any:
    if isinstance(value, Decimal):
        return value.copy_negate()  # a minus would round it
    return -value if isinstance(value, int | float) and not isinstance(value, bool) else NOT_LITERAL


def literal(node: exp.Expr) -> Any:
    """The value of a literal, with its SQL type: 1.5 is a decimal, 1.5e0 a floating-point number."""
    node = node.unnest()
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Neg):
        return _negative(literal(node.this))
    if isinstance(node, exp.Literal):
        return str(node.this) if node.is_string else _number(str(node.this))
    return _time(node)


def _time(node: exp.Expr) -> Any:
    """``TIMESTAMP '2026-01-01 12:00:00'`` or ``DATE '2026-01-01'``."""
    if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
        text = literal(node.this)
        if isinstance(text, str) and node.to.this is exp.DataType.Type.DATE:
            return _day(text)
        if isinstance(text, str) and node.to.this in _TIMES:
            return _instant(text)
    return NOT_LITERAL


def _day(text: str) -> Any:
    try:
        return date.fromisoformat(text) if _DAY.fullmatch(text) else NOT_LITERAL
    except ValueError:
        return NOT_LITERAL


def _instant(text: str) -> Any:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return NOT_LITERAL


def _number(text: str) -> Any:
    try:
        if text.isdecimal() and text.isascii():
            return int(text)
        return float(text) if "e" in text.lower() else Decimal(text)
    except (ValueError, ArithmeticError):  # more digits than Python parses
        return NOT_LITERAL
