"""Values of INSERT that need no parser: they are the same as those that it reads."""

from __future__ import annotations

import pytest

from millstream.sql import queries
from millstream.sql.grammar import statement
from millstream.sql.text import Text, pieces

PLAIN = ["1", "-1", "0", "007", "1.5", "-0.25", "9" * 60, "'text'", "''", "'it\\'s'", "'a\\nb'", "'ü☃'", '"text"',
         "NULL", "null", "TRUE", "false"]  # fmt: skip
OTHERS = ["1 + 1", "1L", "1.5D", "1e5", "2.5BD", ".5", "1.", "- -1", "+1", "-'a'", "-NULL", "DATE '2026-01-01'", "(1)",
          "'a' 'b'", "upper('a')", "X'1F'", "r'a\\b'", "1 /* one */", "current_date"]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN)
def test_a_plain_value_is_what_the_parser_reads(value: str) -> None:
    (piece,) = pieces(Text(value, "SQL"))
    found = queries.plain_value(piece.tokens)
    assert found is not None and found == queries.parsed(piece.text, piece.tokens)


@pytest.mark.parametrize("value", OTHERS)
def test_other_values_are_parsed(value: str) -> None:
    (piece,) = pieces(Text(value, "SQL"))
    found = queries.plain_value(piece.tokens)
    assert found is None or found == queries.parsed(piece.text, piece.tokens)


def test_rows_of_plain_values_are_not_parsed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    parsed = queries.parsed
    monkeypatch.setattr(queries, "parsed", lambda text, given: calls.append(given) or parsed(text, given))
    rows = ", ".join(f"({i}, -{i}, 'row {i}', NULL, true)" for i in range(1000))
    (piece,) = pieces(Text(f"INSERT INTO t VALUES {rows}, (1 + 1, 2, 'x', NULL, true)", "SQL"))
    found = statement(piece)
    assert len(found.rows) == 1001  # type: ignore[attr-defined]
    assert len(calls) == 1
