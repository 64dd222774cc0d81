"""Values of INSERT that need no parser: they are the same as those that it reads."""

from __future__ import annotations

import random

import pytest

from millstream.errors import DefinitionError
from millstream.sql.parse import lexer, queries
from millstream.sql.parse.literals import NOT_LITERAL, literal, plain
from millstream.sql.parse.script import split
from millstream.sql.parse.statement_parser import statement
from millstream.sql.parse.text import DIALECT, Text

PLAIN = ["1", "-1", "0", "007", "1.5", "-0.25", "9" * 60, "'text'", "''", "'it\\'s'", "'a\\nb'", "'ü☃'", '"text"',
         "NULL", "null", "TRUE", "false", "1e5", "-1.5E-3", "DATE '2026-01-01'", "timestamp '2026-01-01 12:00:00.5'",
         "TIMESTAMP '2026-01-01T12:00:00+02:00'"]  # fmt: skip
OTHERS = ["1 + 1", "1L", "1.5D", "1e500", "2.5BD", ".5", "1.", "- -1", "+1", "-'a'", "-NULL", "DATE '2026-1-1'", "(1)",
          "'a' 'b'", "upper('a')", "X'1F'", "r'a\\b'", "1 /* one */", "current_date", "DATE '2026-02-30'",
          "TIMESTAMP 'noon'", "DATE 5"]  # fmt: skip
VALUES = [*PLAIN, *OTHERS, "'it''s'", "''''", "'a\nb'", "date'2026-01-01'", "NULLIF(1, 2)", "null_1", "5$", "a$b",
          "'x' -- ) (\n", "'VALUES (1)'", "`VALUES`", "x -> x + 1", "array(1, 2)", "1.5.5", "1_000",
          "2026-01-01"]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN)
def test_a_plain_value_is_what_the_parser_reads(value: str) -> None:
    (piece,) = split(Text(value, "SQL"))
    found = plain(piece.tokens)
    read = literal(queries.parsed(piece.text, piece.tokens))
    assert (type(found), found) == (type(read), read)
    assert found is not NOT_LITERAL


@pytest.mark.parametrize("value", OTHERS)
def test_other_values_are_parsed(value: str) -> None:
    (piece,) = split(Text(value, "SQL"))
    assert plain(piece.tokens) is NOT_LITERAL


@pytest.mark.parametrize("seed", range(40))
def test_the_short_way_gives_the_same_tokens(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)

    def row() -> str:
        kinds = VALUES if chance.random() < 0.1 else PLAIN
        return "(" + chance.choice([", ", ",", " ,\n\t"]).join(chance.choice(kinds) for _ in range(4)) + ")"

    def said() -> str:
        rows = chance.choice([", ", ",\n"]).join(row() for _ in range(chance.randrange(1, 6)))
        heads = ["INSERT INTO t VALUES ", "insert into t (a, b)\nvalues", "-- VALUES\nINSERT INTO t VALUES\n"]
        return chance.choice(heads) + rows + chance.choice(["", " ON CONFLICT DO NOTHING", " -- done\n"])

    sql = ";\n".join(said() for _ in range(chance.randrange(1, 5)))
    assert len(sql) < lexer.SHORT
    slow = _told(sql)
    monkeypatch.setattr(lexer, "SHORT", 0)
    assert _told(sql) == slow


def _told(sql: str) -> list[tuple[object, ...]]:
    return [(t.token_type, t.text, t.start, t.end) for p in split(Text(sql, f"{lexer.SHORT}")) for t in p.tokens]


def test_errors_after_a_long_list_of_values_name_their_place() -> None:
    rows = ",\n".join(f"({i}, 'x')" for i in range(2000))
    with pytest.raises(DefinitionError) as told:
        list(map(statement, split(Text(f"INSERT INTO t VALUES\n{rows},\n(1, upper('a' b c))"))))
    assert told.value.origin is not None
    assert told.value.origin.line == 2002


def test_a_text_may_be_long_where_it_has_rows_of_plain_values() -> None:
    row = "(" + ", ".join(["1234567890"] * 16) + ")"
    (piece,) = split(Text("INSERT INTO t VALUES " + ", ".join([row] * 6000)))
    assert len(piece.text.sql) > 1_000_000
    assert len(statement(piece).rows) == 6000  # type: ignore[attr-defined]
    with pytest.raises(DefinitionError, match="not counting rows of plain values") as told:
        split(Text("SELECT " + ", ".join(["1234567890"] * 90_000)))
    assert "COPY" in str(told.value.hint)


def test_rows_of_plain_values_are_not_parsed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    parsed = queries.parsed
    monkeypatch.setattr(queries, "parsed", lambda text, given: calls.append(given) or parsed(text, given))
    rows = ", ".join(f"({i}, -{i}, 'row {i}', NULL, true)" for i in range(1000))
    (piece,) = split(Text(f"INSERT INTO t VALUES {rows}, (1 + 1, 2, 'x', NULL, true)", "SQL"))
    found = statement(piece)
    assert len(found.rows) == 1001  # type: ignore[attr-defined]
    assert len(calls) == 1


def test_places_are_found_in_one_way_through_the_text() -> None:
    counted = 0

    class Counted(str):
        """A text that counts the characters that are searched for line breaks."""

        def count(self, sub: str, start: int = 0, end: int | None = None) -> int:  # type: ignore[override]
            nonlocal counted
            counted += (len(self) if end is None else end) - start
            return str.count(self, sub, start, end)

    sql = Counted("".join(f"INSERT INTO t\n  VALUES ({i}, 'a');\n" for i in range(1000)))
    tokenize = DIALECT.tokenize
    found = [t for part, _ in lexer.parts(sql, tokenize, limit=10**6) for t in part]
    assert counted <= len(sql)
    plain = tokenize(str(sql))
    assert [(t.token_type, t.text, t.line, t.col, t.start, t.end) for t in found] == [
        (t.token_type, t.text, t.line, t.col, t.start, t.end) for t in plain
    ]
