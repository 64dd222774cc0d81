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
    all_tokens = list(tokens)
    new: dict[int, str] = {}
    for i, token in enumerate(all_tokens[:-1]):
        if word(token) != "ROW" or all_tokens[i + 1].token_type not in (TokenType.L_PAREN, TokenType.LT):
            continue
        new[i] = "STRUCT"
        end = closing(all_tokens, i + 1)
        if all_tokens[i + 1].token_type is TokenType.L_PAREN and end < len(all_tokens):
            new |= {i + 1: "<", end: ">"}
    first = all_tokens[0].start
    spelling = text[first : all_tokens[-1].end + 1]
    for i in sorted(new, reverse=True):
        spelling = spelling[: all_tokens[i].start - first] + new[i] + spelling[all_tokens[i].end + 1 - first :]
    return plain_names(spelling)


def instead_of(spelling: str) -> str:
    """What to write instead of an unknown type."""
    first = spelling.partition("(")[0].split()
    hint = _INSTEAD.get(first[0].upper()) if first else None
    return f"write {hint}" if hint else "e.g. BIGINT, DECIMAL(10, 2), ARRAY<STRING> or STRUCT<a: INT, b: STRING>"
