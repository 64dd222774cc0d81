"""Reserved names, and the check that keeps user columns from using them.

Internal columns start with ``$`` (or ``@``, for the arguments of aggregates), and no user column may. So internal names
cannot collide with user names. A few internal columns are visible to users: the kind of a change as ``op``, the number
of an epoch as ``epoch``. `free_name` gives them a plain name where they leave the system.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from millstream.errors import SchemaError
from millstream.model.origin import here

OP = "$op"
"""The column with the kind of a change: +I, -U, +U or -D."""

PLACE = "$order"
"""The beginning of the names of columns that carry the order of rows between tasks."""

SHOWN_OP, SHOWN_EPOCH = "op", "epoch"
"""The names of the change kind and the epoch number where users see them."""

CHANGED_AT = "changed_at"
"""The column of a changelog with the processing time of the epoch."""

PANES = ("pane", "timing", "is_first", "is_last", "watermark", "epoch")
"""The columns that a history of panes has in addition to those of its view."""

OF = "_of_"
"""The prefix of columns that a query adds for its own use (`sql/relations/relation.py`). They are part of state on
disk, so the prefix cannot change to ``$``.
"""


def free_name(name: str, names_in_use: Iterable[str]) -> str:
    """A name for a column that is added to user columns, with as many ``_`` in front as needed to be unique.

    >>> free_name("op", ["id", "price"]), free_name("op", ["Op", "_op"])
    ('op', '__op')
    """
    there = {folded(n) for n in names_in_use}
    while folded(name) in there:
        name = f"_{name}"
    return name


def folded(name: str) -> str:
    """The comparison form of a name: Spark and DuckDB are case-insensitive, and a precomposed accented letter looks the
    same as a letter with a combining accent.

    >>> folded("Price") == folded("PRICE"), folded("straße") == folded("strasse")
    (True, False)
    """
    raised = (u if len(u := c.upper()) == 1 else c for c in unicodedata.normalize("NFC", name))
    return unicodedata.normalize("NFC", "".join(low if len(low := c.lower()) == 1 else c for c in raised))


def check_column(name: str) -> None:
    """Reject a column name that some part of the system would interpret differently."""
    why, write = _problem(name)
    if why:
        text = name if len(name) < 80 else f"{name[:60]}..."
        raise SchemaError(f"the column name {text!r} {why}", hint=write, origin=here())


def check_user_columns(names: Iterable[str]) -> None:
    """Reject columns of a source, a table or a query whose name is reserved for columns that queries add."""
    for name in names:
        if name.lower().startswith(OF):
            raise SchemaError(
                f"the column name {name!r} is reserved",
                hint=f"names must not begin with {OF}: {_OTHER}",
                origin=here(),
            )


def _problem(name: str) -> tuple[str, str]:
    """What is wrong with a name, and what to write instead; nothing if it is valid."""
    if not name.strip():
        return "is empty", "every column needs a name"
    if name[0] in "$@":
        return "is reserved", f"names must not begin with {name[0]}: {_OTHER}"
    bad = next((c for c in name if c == "`" or unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")), None)
    if bad is not None:
        what = "a backquote" if bad == "`" else f"the character U+{ord(bad):04X}"
        return f"has {what} in it, which cannot be written in SQL", _OTHER
    if name == "*" or (name[0] == "^" and name[-1] == "$"):
        return "means all columns", _OTHER
    if len(name) > LONGEST:
        return f"has {len(name)} characters", f"a column name has at most {LONGEST} characters: {_OTHER}"
    return "", ""


_OTHER = "give the column another name where the records are written, or leave it out of the schema"
LONGEST = 1_000
"""The maximum length of a column name, in characters."""
