"""The errors for a name that is not a column: of a statement or program, and of data that should have it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TypeVar

from millstream.errors import MillstreamError, Origin, SchemaError

Error = TypeVar("Error", bound=MillstreamError)


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
        no_column(name, of),
        detail="there are: " + ", ".join(names),
        hint=hint or (f"did you mean `{close}`?" if close is not None else None),
        origin=origin,
    )


def no_column(name: str, of: str = "") -> str:
    """The message that there is no such column."""
    return f"there is no column `{name}`" + (f" in `{of}`" if of else "")


def missing_column(
    kind: type[Error], relation: str, name: str, names: Sequence[str], *, hint: str | None = None
) -> Error:
    """The error for a declared column that the data does not have. `relation` says where it was expected.

    >>> missing_column(SchemaError, "the topic `bids`", "price", ["auction"]).message
    'the topic `bids` has no column `price`'
    """
    return kind(f"{relation} has no column `{name}`", detail="it has: " + ", ".join(names), hint=hint)


def similar_column(name: str, names: Sequence[str]) -> str | None:
    """The column with the most similar name, if one is similar."""
    close = difflib.get_close_matches(name.lower(), [n.lower() for n in names], n=1)
    return next((n for n in names if close and n.lower() == close[0]), None)
