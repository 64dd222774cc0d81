"""The error for a name that is not a column."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from millstream.errors import Origin, SchemaError


def unknown_column(
    name: str, names: Sequence[str], *, of: str = "", hint: str | None = None, origin: Origin | None = None
) -> SchemaError:
    """The error for a name that is not among the columns `names`, of the relation or text `of` if that is known.

    >>> error = unknown_column("prise", ["auction", "price"])
    >>> error.message, error.detail, error.hint
    ('there is no column `prise`', 'there are: auction, price', 'did you mean `price`?')
    """
    close = similar_column(name, names)
    return SchemaError(
        f"there is no column `{name}`" + (f" in `{of}`" if of else ""),
        detail="there are: " + ", ".join(names),
        hint=hint or (f"did you mean `{close}`?" if close is not None else None),
        origin=origin,
    )


def similar_column(name: str, names: Sequence[str]) -> str | None:
    """The column with the most similar name, if one is similar."""
    close = difflib.get_close_matches(name.lower(), [n.lower() for n in names], n=1)
    return next((n for n in names if close and n.lower() == close[0]), None)
