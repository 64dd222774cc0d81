"""Broken statements: whatever is done to a text, it is read and bound or refused in our own words, and soon.

Every text is made from its number, so that ``MUTATED=17 pytest tests/sql/test_mutated.py`` shows and tries one alone.
"""

from __future__ import annotations

import functools
import os
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from millstream.errors import MillstreamError
from millstream.sql.parse import statement_parser
from millstream.sql.parse.script import split
from millstream.sql.parse.text import Text, tokens
from tests.sql import kit

SLOWEST = 10.0
"""Seconds of this process that no statement may take."""
_ODD = [
    "'", '"', "`", "(", ")", "[", "]", "{", "}", "<", ">", ",", ";", ".", "..", "*", "-", "--", "/*", "*/", "=", "=>",
    "->", "::", "$", "?", ":x", "@x", "\\", "\x00", "\u200b", "é", "\U0001f600", "NULL", "0", "-1", "1e999",
    "''", "9" * 40, "AS", "SELECT", "FROM", "WHERE", "GROUP BY", "INTERVAL", "TABLE(", "OVER ()", "EMIT", "UNION",
    "WITH", "(SELECT 1)", "CASE", "END", "NOT", "TUMBLE(", "DESCRIPTOR(", "hot", "bids", "ts", "x -> x", "{{", "\n",
    "\t", "$$",
]  # fmt: skip

Words = list[str]


@functools.cache
def corpus() -> tuple[str, ...]:
    """The right statements."""
    text = Text((Path(__file__).parent / "statements.sql").read_text(encoding="utf-8"))
    return tuple(p.sql for p in split(text))


@functools.cache
def words(sql: str) -> tuple[str, ...]:
    """The tokens of a statement as they were written."""
    return tuple(sql[t.start : t.end + 1] for t in tokens(Text(sql)))


def _delete(given: Words, chance: random.Random) -> Words:
    at = chance.randrange(len(given))
    return given[:at] + given[at + chance.choice((1, 1, 1, 2, 5)) :]


def _double(given: Words, chance: random.Random) -> Words:
    at = chance.randrange(len(given))
    end = at + chance.choice((1, 1, 2, 8))
    return given[:end] + given[at:end] * chance.choice((1, 1, 1, 30)) + given[end:]


def _swap(given: Words, chance: random.Random) -> Words:
    a, b = chance.randrange(len(given)), chance.randrange(len(given))
    changed = list(given)
    changed[a], changed[b] = changed[b], changed[a]
    return changed


def _splice(given: Words, chance: random.Random) -> Words:
    other = list(words(chance.choice(corpus())))
    return given[: chance.randrange(len(given) + 1)] + other[chance.randrange(len(other)) :]


def _graft(given: Words, chance: random.Random) -> Words:
    other = list(words(chance.choice(corpus())))
    at, start = chance.randrange(len(given)), chance.randrange(len(other))
    return given[:at] + other[start : start + chance.randrange(1, 12)] + given[at + chance.randrange(3) :]


def _odd(given: Words, chance: random.Random) -> Words:
    at = chance.randrange(len(given) + 1)
    return [*given[:at], chance.choice(_ODD), *given[at + chance.randrange(2) :]]


def _cut(given: Words, chance: random.Random) -> Words:
    return given[: chance.randrange(len(given))] or given


_CHANGES: tuple[Callable[[Words, random.Random], Words], ...] = (
    _delete, _delete, _double, _swap, _swap, _splice, _graft, _graft, _odd, _odd, _cut,
)  # fmt: skip


def mutated(number: int) -> str:
    """The broken statement of this number."""
    chance = random.Random(number)
    given = list(words(chance.choice(corpus())))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        given = chance.choice(_CHANGES)(given, chance) or [";"]
    sql = " ".join(given)
    if chance.random() < 0.15:  # below the level of tokens
        raw = bytearray(sql.encode("utf-8", "replace"))
        for _ in range(chance.randrange(1, 4)):
            raw[chance.randrange(len(raw)) : chance.randrange(len(raw)) + 1] = bytes([chance.randrange(256)])
            raw = raw or bytearray(b" ")
        sql = raw.decode("utf-8", "replace")
    return sql


def tried(sql: str) -> None:
    """Read a text and bind what is in it; refusals are welcome."""
    catalog = kit.world()
    try:
        for piece in split(Text(sql)):
            kit.bound(statement_parser.statement(piece), catalog)
    except MillstreamError as error:
        assert error.message and len(error.message) < 400, error.message
        assert str(error)


def check(numbers: Iterable[int]) -> None:
    """Try broken statements; says which number did what must not happen."""
    wrong: list[str] = []
    for number in numbers:
        sql, began = mutated(number), time.process_time()
        try:
            tried(sql)
        except BaseException as error:  # anything but our own errors is a finding
            if isinstance(error, KeyboardInterrupt):
                raise
            wrong.append(f"{number}: {type(error).__name__}: {str(error)[:200]}\n    {sql[:300]!r}")
        if time.process_time() - began > SLOWEST:
            wrong.append(f"{number}: took {time.process_time() - began:.1f} s\n    {sql[:300]!r}")
    assert not wrong, f"{len(wrong)} broken statements; see one alone with MUTATED=<number>:\n" + "\n".join(wrong[:30])


@pytest.mark.parametrize("sql", corpus(), ids=lambda s: s[:40])
def test_the_statements_that_are_broken_below_can_be_read(sql: str) -> None:
    (piece,) = split(Text(sql))
    assert statement_parser.statement(piece).piece.sql == sql


def test_a_broken_statement_is_refused_in_our_own_words() -> None:
    chosen = os.environ.get("MUTATED")
    if chosen:
        print(mutated(int(chosen)))  # noqa: T201 - asked for
    check([int(chosen)] if chosen else range(1_200))


@pytest.mark.slow
def test_many_more_broken_statements_are_refused_in_our_own_words() -> None:
    check(range(1_200, 103_000))
