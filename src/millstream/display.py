"""Display of values: text that is safe for a terminal, lists of typed columns, and HTML tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from unicodedata import category

MOST_IN_A_LINE = 12
"""The number of columns that one line lists by name; the remaining ones are only counted."""

_STEERING = ("Cc", "Cs", "Zl", "Zp")
_DIRECTIONS = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

_STYLE = (
    ".millstream table{border-collapse:collapse}"
    ".millstream th,.millstream td{padding:2px 8px;text-align:left;vertical-align:top;white-space:pre-wrap}"
    ".millstream th{border-bottom:1px solid currentColor}"
    ".millstream .number{text-align:right}"
    ".millstream .type,.millstream .null,.millstream .note{font-weight:normal;opacity:.6}"
)

Column = tuple[str, str]
"""A column name and its SQL type."""


def visible(text: str) -> str:
    r"""Escape control characters, so that data cannot forge rows or colours in a terminal.

    >>> visible("a\tb")
    'a\\tb'
    """
    if text.isprintable():
        return text
    return "".join(ascii(c)[1:-1] if c in _DIRECTIONS or category(c) in _STEERING else c for c in text)


def columns_line(columns: Sequence[Column]) -> str:
    """Format columns with their types as in a schema. A long list is truncated.

    >>> columns_line([("auction", "BIGINT"), ("ts", "TIMESTAMP")])
    'auction BIGINT, ts TIMESTAMP'
    """
    named = [visible(f"{name} {kind}".rstrip()) for name, kind in columns[:MOST_IN_A_LINE]]
    more = len(columns) - len(named)
    return ", ".join([*named, *([f"... {more} more"] if more else [])])


def html_table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[str | None]],
    *,
    title: str = "",
    numbers: Sequence[bool] = (),
    notes: Sequence[str] = (),
) -> str:
    """Render a table for a notebook. All text is escaped, None is NULL, and the columns
    in `numbers` are right-aligned.
    """
    right = [*numbers, *([False] * (len(columns) - len(numbers)))]
    opening = [' class="number"' if r else "" for r in right]
    head = "".join(
        f"<th{o}>{_text(name)}" + (f'<br><span class="type">{_text(kind)}</span>' if kind else "") + "</th>"
        for o, (name, kind) in zip(opening, columns, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(f"<td{o}>{_cell(v)}</td>" for o, v in zip(opening, row, strict=True)) + "</tr>" for row in rows
    )
    return (
        f'<div class="millstream"><style>{_STYLE}</style>'
        + (f"<div>{_text(title)}</div>" if title else "")
        + f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        + "".join(f'<div class="note">{_text(note)}</div>' for note in notes)
        + "</div>"
    )


def schema_html(title: str, columns: Sequence[Column], notes: Sequence[str] = ()) -> str:
    """Render the columns of a stream or a view as a table for a notebook: one row per column."""
    return html_table([("column", ""), ("type", "")], [[n, k or "?"] for n, k in columns], title=title, notes=notes)


def _text(text: str) -> str:
    return escape(visible(text))


def _cell(value: str | None) -> str:
    return '<span class="null">NULL</span>' if value is None else _text(value)
