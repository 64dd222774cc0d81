"""The names that Millstream keeps for itself, and the check that keeps user columns out of them.

Internal columns begin with ``$`` (or ``@``, for the arguments of aggregates), and no user column may. So nothing inside
can meet a user's name, whatever it is. A few internal columns are shown to people: the kind of a change as ``op``, the
number of an epoch as ``epoch``. They get their plain name where they leave the system, by `free_name`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from millstream.errors import SchemaError
from millstream.model.origin import here

OP = "$op"
"""The column of changes that says what kind of change a row is: +I, -U, +U or -D."""

SHOWN_OP, SHOWN_EPOCH = "op", "epoch"
"""How the kind of a change and the number of its epoch are called where people see them."""

CHANGED_AT = "changed_at"
"""The column of a changelog with the processing time of the epoch."""

PANES = ("pane", "timing", "is_first", "is_last", "watermark", "epoch")
"""The columns that a history of panes has beside those of its view."""

OF = "_of_"
"""Begins the columns that a query adds for its own use (`sql/relations/relation.py`). They lie in state on disk, so
the prefix cannot move into the ``$`` names.
"""


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """A name for a column that is added to a user's columns: with so many ``_`` before it that it is free.

    >>> free_name("op", ["id", "price"]), free_name("op", ["Op", "_op"])
    ('op', '__op')
    """
    there = {folded(n) for n in taken}
    while folded(wanted) in there:
        wanted = f"_{wanted}"
    return wanted


def folded(name: str) -> str:
    """A name as far as names differ: Spark and DuckDB do not tell capitals from small letters, and nobody can tell a
    letter with an accent from a letter and an accent.

    >>> folded("Price") == folded("PRICE"), folded("straße") == folded("strasse")
    (True, False)
    """
    raised = (u if len(u := c.upper()) == 1 else c for c in unicodedata.normalize("NFC", name))
    return unicodedata.normalize("NFC", "".join(low if len(low := c.lower()) == 1 else c for c in raised))


def check_column(name: str) -> None:
    """Refuse a column name that some part of the system would read as something else."""
    why, write = _problem(name)
    if why:
        shown = name if len(name) < 80 else f"{name[:60]}..."
        raise SchemaError(f"the column name {shown!r} {why}", hint=write, origin=here())


def check_user_columns(names: Iterable[str]) -> None:
    """Refuse columns of a source, a table or a query that have a name of those which queries add."""
    for name in names:
        if name.lower().startswith(OF):
            raise SchemaError(
                f"the column name {name!r} is reserved",
                hint=f"names must not begin with {OF}: {_OTHER}",
                origin=here(),
            )


def _problem(name: str) -> tuple[str, str]:
    """What is wrong with a name, and what to write instead; nothing, if it is good."""
    if not name.strip():
        return "is empty", "every column needs a name"
    if name[0] in "$@":
        return "is reserved", f"names must not begin with {name[0]}: {_OTHER}"
    bad = next((c for c in name if c == "`" or unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")), None)
    if bad is not None:
        what = "a backquote" if bad == "`" else f"the character U+{ord(bad):04X}"
        return f"has {what} in it, which SQL cannot write", _OTHER
    if name == "*" or (name[0] == "^" and name[-1] == "$"):
        return "means all columns", _OTHER
    if len(name) > LONGEST:
        return f"has {len(name)} characters", f"a column name has at most {LONGEST} characters: {_OTHER}"
    return "", ""


_OTHER = "give the column another name where the records are written, or leave it out of the schema"
LONGEST = 1_000
"""Characters of a column name at most."""
