"""Steps that take two streams, or look at several rows at once: joins, sets, window functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import DefinitionError, Origin
from millstream.model.expression import Expr
from millstream.model.origin import here
from millstream.model.types.scalars import mean_type
from millstream.model.types.schema import TIMESTAMP, Field, Schema
from millstream.model.windows.trigger import MOST_RECORDS

if TYPE_CHECKING:
    from millstream.model.steps.step import Named, Order, Step

KINDS = ("inner", "left", "right", "full", "semi", "anti")
"""How two streams are joined."""


@dataclass(frozen=True, eq=False)
class Joined:
    """Pairs of rows of two streams: `on` are expressions over the left and the right row that must be equal.

    In a pair a column of the left has its own name and one of the right the name that `renamed` has for it; `condition`
    is over these.
    """

    left: Step
    right: Step
    on: tuple[tuple[Expr, Expr], ...]
    how: str
    renamed: tuple[tuple[str, str], ...]
    condition: Expr | None = None
    certain: bool | None = None
    """Whether rows without a partner wait until it is certain that none comes; None: where time bounds them."""
    lateness: int = 0
    """For how long after the watermark rows are still taken, in micros, where time bounds them."""
    ttl: int | None = None
    """For how long rows are kept at most, in micros of event time."""
    origin: Origin | None = None

    @cached_property
    def pair(self) -> Schema:
        """The columns of a pair."""
        names = dict(self.renamed)
        return Schema.of([*self.left.schema, *(Field(names[f.name], f.type) for f in self.right.schema)])

    @cached_property
    def schema(self) -> Schema:
        """The columns of a pair, or those of the left alone."""
        return self.left.schema if self.how in ("semi", "anti") else self.pair


@dataclass(frozen=True, eq=False)
class JoinedAsOf:
    """Each row of the left with the row of the right that was valid at its time, among those with equal keys."""

    left: Step
    right: Step
    on: tuple[tuple[Expr, Expr], ...]
    times: tuple[str, str]
    renamed: tuple[tuple[str, str], ...]
    direction: str = "backward"
    tolerance: int | None = None
    strict: bool = False
    """Whether a row of exactly the same time does not count."""
    required: bool = False
    """Whether rows of the left without a partner go away."""
    lateness: int = 0
    origin: Origin | None = None

    @cached_property
    def schema(self) -> Schema:
        """The columns of both."""
        names = dict(self.renamed)
        return Schema.of([*self.left.schema, *(Field(names[f.name], f.type) for f in self.right.schema)])


@dataclass(frozen=True, eq=False)
class Compared:
    """The rows that are in both of two streams (`intersect`), or in the first and not in the second (`except`)."""

    left: Step
    right: Step
    keep: str
    copies: bool = False
    origin: Origin | None = None

    @cached_property
    def schema(self) -> Schema:
        """The columns of the first."""
        return self.left.schema


@dataclass(frozen=True, eq=False)
class WindowFunction:
    """A window function: its kind, what it is of, and its frame (see `plan.chained.Call`)."""

    kind: str
    argument: Expr | None = None
    offset: int = 1
    default: Any = None
    frame: tuple[str, float | None, float | None] | None = None

    def __post_init__(self) -> None:
        rows = () if self.frame is None or self.frame[0] != "rows" else self.frame[1:]
        for n in (self.offset, *rows):
            if n is not None and abs(n) > MOST_RECORDS:
                raise DefinitionError(f"{n!r:.40} rows are out of range", hint="at most 10^15 rows", origin=here())

    def type_in(self, schema: Schema) -> pa.DataType | None:
        """The type of its result, where it is known."""
        if self.kind in ("row_number", "rank", "dense_rank", "ntile", "count"):
            return pa.int64()
        if self.kind in ("percent_rank", "cume_dist"):
            return pa.float64()
        of = None if self.argument is None else self.argument.type_in(schema)
        if self.kind == "avg":
            return mean_type(of)
        if self.kind == "sum" and of is not None:
            return pa.int64() if pa.types.is_integer(of) else of
        return of


@dataclass(frozen=True, eq=False)
class Windowed:
    """Window functions over the rows of each key in an order, as further columns."""

    input: Step
    keys: Named
    order: tuple[Order, ...]
    functions: tuple[tuple[str, WindowFunction], ...]
    origin: Origin | None = None
    keeps_times: bool = False
    """Whether its rows are as old as their own times say, although they change when others come."""

    @property
    def added(self) -> Named:
        """The arguments as columns of their own."""
        return tuple((f"@{n}", f.argument) for n, f in self.functions if f.argument is not None)

    @cached_property
    def schema(self) -> Schema:
        """All columns of the rows, then the functions."""
        before = self.input.schema
        return Schema.of([*before, *(Field(n, f.type_in(before)) for n, f in self.functions)])


@dataclass(frozen=True, eq=False)
class Settling:
    """Rows are held until they change no more by the time in `column`, and then go on in its order."""

    input: Step
    column: str
    origin: Origin | None = None
    cuts: bool = False
    """Whether records of sources that come behind the watermark are set apart, so that later steps never see them."""

    @cached_property
    def schema(self) -> Schema:
        """The columns stay."""
        return self.input.schema


@dataclass(frozen=True, eq=False)
class Changelog:
    """The changes of rows, each as a row that is only ever added."""

    input: Step
    names: tuple[str, str, str]
    """The columns with the kind of change, the number of its epoch, and the time of that."""
    origin: Origin | None = None

    @cached_property
    def schema(self) -> Schema:
        """What happened and when, then the columns of the row."""
        kinds = (pa.string(), pa.int64(), TIMESTAMP)
        added = [Field(n, k) for n, k in zip(self.names, kinds, strict=True)]
        return Schema.of([*added, *self.input.schema])


@dataclass(frozen=True, eq=False)
class TableRows:
    """The rows of a stored table, as they are and as they change."""

    name: str
    schema: Schema
    origin: Origin | None = None


@dataclass(frozen=True, eq=False)
class OneRow(TableRows):
    """One row that is there from the first epoch on: what a query without FROM is computed over."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """The rows of streams that change, as they are; it gives them what tells them apart."""

    input: Step
    origin: Origin | None = None

    @cached_property
    def schema(self) -> Schema:
        """The columns stay."""
        return self.input.schema
