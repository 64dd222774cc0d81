"""Steps with two inputs, or over several rows at once: joins, set operations, window functions."""

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
"""The kinds of joins."""


@dataclass(frozen=True, eq=False)
class Joined:
    """Pairs of rows of two streams: `on` has expressions over the left and the right row that must be equal.

    In a pair, a column of the left side keeps its name, and a column of the right side has the name that `renamed` maps
    it to; `condition` is over these names.
    """

    left: Step
    right: Step
    on: tuple[tuple[Expr, Expr], ...]
    how: str
    renamed: tuple[tuple[str, str], ...]
    condition: Expr | None = None
    certain: bool | None = None
    """Whether rows without a match wait until it is certain that none will arrive; None means if time bounds the
    join.
    """
    lateness: int = 0
    """How long after the watermark rows are still accepted, in micros, if time bounds the join."""
    ttl: int | None = None
    """How long rows are kept at most, in micros of event time."""
    origin: Origin | None = None

    @cached_property
    def pair(self) -> Schema:
        """The columns of a pair."""
        names = dict(self.renamed)
        return Schema.of([*self.left.schema, *(Field(names[f.name], f.type) for f in self.right.schema)])

    @cached_property
    def schema(self) -> Schema:
        """The columns of a pair, or those of the left side alone."""
        return self.left.schema if self.how in ("semi", "anti") else self.pair


@dataclass(frozen=True, eq=False)
class JoinedAsOf:
    """Each row of the left side with the row of the right side that was valid at its time, among
    those with equal keys.
    """

    left: Step
    right: Step
    on: tuple[tuple[Expr, Expr], ...]
    times: tuple[str, str]
    renamed: tuple[tuple[str, str], ...]
    direction: str = "backward"
    tolerance: int | None = None
    strict: bool = False
    """Whether a row of exactly the same time is excluded."""
    required: bool = False
    """Whether rows of the left side without a match are dropped."""
    lateness: int = 0
    origin: Origin | None = None

    @cached_property
    def schema(self) -> Schema:
        """The columns of both sides."""
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
    """A window function: its kind, its argument, and its frame (see `WindowCall` in `plan.operators.relations`)."""

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
        """The type of its result, if known."""
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
    """Window functions over the ordered rows of each key, as additional columns."""

    input: Step
    keys: Named
    order: tuple[Order, ...]
    functions: tuple[tuple[str, WindowFunction], ...]
    origin: Origin | None = None
    keeps_times: bool = False
    """Whether its rows are as old as their own times indicate, although they change when other rows arrive."""

    @property
    def added(self) -> Named:
        """The arguments as separate columns."""
        return tuple((f"@{n}", f.argument) for n, f in self.functions if f.argument is not None)

    @cached_property
    def schema(self) -> Schema:
        """All columns of the rows, then the functions."""
        before = self.input.schema
        return Schema.of([*before, *(Field(n, f.type_in(before)) for n, f in self.functions)])


@dataclass(frozen=True, eq=False)
class Settling:
    """Rows are held until they are final by the time in `column`, and are then emitted in its order."""

    input: Step
    column: str
    origin: Origin | None = None
    cuts: bool = False
    """Whether source records behind the watermark go to ``<view>$late``, so that later steps never see them."""

    @cached_property
    def schema(self) -> Schema:
        """The columns are unchanged."""
        return self.input.schema


@dataclass(frozen=True, eq=False)
class Changelog:
    """The changes of rows as an append-only stream, one row per change."""

    input: Step
    names: tuple[str, str, str]
    """The columns with the kind of change, its epoch number, and the time of the epoch."""
    origin: Origin | None = None

    @cached_property
    def schema(self) -> Schema:
        """The kind and time of the change, then the columns of the row."""
        kinds = (pa.string(), pa.int64(), TIMESTAMP)
        added = [Field(n, k) for n, k in zip(self.names, kinds, strict=True)]
        return Schema.of([*added, *self.input.schema])


@dataclass(frozen=True, eq=False)
class TableRows:
    """The current rows of a stored table, and their changes."""

    name: str
    schema: Schema
    origin: Origin | None = None


@dataclass(frozen=True, eq=False)
class OneRow(TableRows):
    """One constant row that exists from the first epoch: the input of a query without FROM."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """The rows of changing streams, unchanged, with an identity that distinguishes them."""

    input: Step
    origin: Origin | None = None

    @cached_property
    def schema(self) -> Schema:
        """The columns are unchanged."""
        return self.input.schema
