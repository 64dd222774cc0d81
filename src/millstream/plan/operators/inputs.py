"""What an operator takes: the changes of other operators, and the expressions on the way. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from millstream.plan.parts import Op


@dataclass(frozen=True)
class Sort:
    """A column that rows are ordered by."""

    column: str
    descending: bool
    nulls_first: bool

    def shown(self, by: str) -> str:
        """As a person writes it, for a column that is called `by`."""
        usual = self.nulls_first is not self.descending
        nulls = "" if usual else f" NULLS {'FIRST' if self.nulls_first else 'LAST'}"
        return f"{by}{' DESC' if self.descending else ''}{nulls}"


@dataclass(frozen=True)
class Take:
    """The changes of a view's operator, and what is done with them on the way."""

    view: str
    ops: tuple[Op, ...] = ()


@dataclass(frozen=True, eq=False)
class Side:
    """One input of an operator: the changes of one other operator, or of several together."""

    takes: tuple[Take, ...]
    columns: tuple[str, ...]
    names: tuple[str, ...] = ()
    """The columns that identify a row of the input; none where the input is append-only."""
    append_only: bool = False
    """Whether no row is ever retracted."""
    bounded: bool = False
    """Whether ``$until`` holds how long a row is kept."""
    stored: bool = False
    """Whether its rows are those of a stored table: they stay as long as the table has them."""
    types: tuple[pa.DataType, ...] = ()
    """The types of its columns, once bound."""
    single: bool = False
    """Whether it has one row at most, as a grand total has: no column has to identify it."""
