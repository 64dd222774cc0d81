"""Type names of other systems, such as ROW for STRUCT, and what to write instead of unsupported types."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from millstream.model.types.schema import plain_names
from millstream.sql.parse.text import closing, word

_INSTEAD = {
    "DATETIME": "TIMESTAMP, which is a moment in UTC, or TIMESTAMP_NTZ for a time of no zone",
    "INTERVAL": "INTERVAL DAY TO SECOND; for a number of months, INT, and add_months(day, months) in a view",
    "TIME": "STRING, or BIGINT for the seconds since midnight",
    "UUID": "STRING",
    "JSON": "STRING; get_json_object(column, '$.path') reads it",
    "JSONB": "STRING; get_json_object(column, '$.path') reads it",
    "VARIANT": "STRING; get_json_object(column, '$.path') reads it",
    "SERIAL": "BIGINT",
    "MONEY": "DECIMAL(19, 4)",
    "ENUM": "STRING",
}


def spelled(text: str, tokens: Sequence[Token]) -> str:
    """The type that some tokens of a text name, in Spark's syntax."""
    given = list(tokens)
    new: dict[int, str] = {}
    for i, token in enumerate(given[:-1]):
        if word(token) != "ROW" or given[i + 1].token_type not in (TokenType.L_PAREN, TokenType.LT):
            continue
        new[i] = "STRUCT"
        end = closing(given, i + 1)
        if given[i + 1].token_type is TokenType.L_PAREN and end < len(given):
            new |= {i + 1: "<", end: ">"}
    first = given[0].start
    said = text[first : given[-1].end + 1]
    for i in sorted(new, reverse=True):
        said = said[: given[i].start - first] + new[i] + said[given[i].end + 1 - first :]
    return plain_names(said)


def instead_of(said: str) -> str:
    """What to write instead of an unknown type."""
    first = said.partition("(")[0].split()
    found = _INSTEAD.get(first[0].upper()) if first else None
    return f"write {found}" if found else "e.g. BIGINT, DECIMAL(10, 2), ARRAY<STRING> or STRUCT<a: INT, b: STRING>"
