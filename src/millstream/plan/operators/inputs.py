"""The inputs of an operator: the changes of other operators, and the expressions applied to them. Frozen values.

The lowering builds them; the engine applies the expressions and hands the changes to the kernel by side.
"""

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
        """As a user writes it, for a column named `by`."""
        usual = self.nulls_first is not self.descending
        nulls = "" if usual else f" NULLS {'FIRST' if self.nulls_first else 'LAST'}"
        return f"{by}{' DESC' if self.descending else ''}{nulls}"


@dataclass(frozen=True)
class FirstRows:
    """The first rows of each key in an order: all that a top-N reads of append-only rows."""

    keys: tuple[str, ...]
    order: tuple[Sort, ...]
    count: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide which rows are the first."""
        return tuple(dict.fromkeys((*self.keys, *(s.column for s in self.order))))


@dataclass(frozen=True)
class Take:
    """The changes of a view's operator, and the ops applied to them on the way."""

    view: str
    ops: tuple[Op, ...] = ()


@dataclass(frozen=True, eq=False)
class Side:
    """One input of an operator: the changes of one or several other operators."""

    takes: tuple[Take, ...]
    columns: tuple[str, ...]
    names: tuple[str, ...] = ()
    """The columns that identify a row of the input; none if the input is append-only."""
    append_only: bool = False
    """Whether no row is ever retracted."""
    bounded: bool = False
    """Whether ``$until`` holds how long a row is kept."""
    stored: bool = False
    """Whether its rows are those of a stored table. They stay as long as the table has them."""
    types: tuple[pa.DataType, ...] = ()
    """The types of its columns, once bound."""
    single: bool = False
    """Whether it has at most one row, such as a grand total. No column has to identify it."""
