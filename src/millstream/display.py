"""How values show themselves: text that cannot steer a terminal, lines of columns with types, tables in notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from unicodedata import category

MOST_IN_A_LINE = 12
"""Columns that one line names; the others are counted."""

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
"""The name of a column and its SQL type."""


def visible(text: str) -> str:
    r"""Text in which characters that steer a terminal are written as escapes: data cannot forge rows or colours.

    >>> visible("a\tb")
    'a\\tb'
    """
    if text.isprintable():
        return text
    return "".join(ascii(c)[1:-1] if c in _DIRECTIONS or category(c) in _STEERING else c for c in text)


def columns_line(columns: Sequence[Column]) -> str:
    """Columns with their types, as in a schema; a long list is cut.

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
    """A table for a notebook. All text is escaped; None is NULL; `numbers` says which columns are aligned right."""
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
    """The columns of a stream or a view as a table for a notebook: one row per column."""
    return html_table([("column", ""), ("type", "")], [[n, k or "?"] for n, k in columns], title=title, notes=notes)


def _text(text: str) -> str:
    return escape(visible(text))


def _cell(value: str | None) -> str:
    return '<span class="null">NULL</span>' if value is None else _text(value)
