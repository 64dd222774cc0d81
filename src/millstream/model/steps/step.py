"""Steps: the nodes of a flow. A step is a frozen value that knows its inputs and its output schema.

Users do not create steps themselves; the methods of `Stream` do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from millstream.errors import DefinitionError, Origin
from millstream.model import describe
from millstream.model.aggregates.aggregate import SPANS_TOO, STRUCTS, Aggregate, settled_type, typed_by
from millstream.model.connector import Connector, Sink
from millstream.model.error_policy import QUARANTINE
from millstream.model.expression import Expr, expr
from millstream.model.origin import here
from millstream.model.source_options import SourceOptions
from millstream.model.steps.loop import Iterated, Round, outside
from millstream.model.steps.pattern import Matched
from millstream.model.steps.process import Asked, Processed
from millstream.model.steps.relational import (
    Changelog,
    Compared,
    Gathered,
    Joined,
    JoinedAsOf,
    Settling,
    TableRows,
    Windowed,
)
from millstream.model.steps.stateful import StatefulStep
from millstream.model.steps.temporal_filter import Temporal
from millstream.model.types.duration import Duration
from millstream.model.types.schema import TIMESTAMP, Field, Schema
from millstream.model.windows.kinds import CountWindow
from millstream.model.windows.windowing import Windowing

Named = tuple[tuple[str, Expr], ...]
"""Named columns, in order."""


@dataclass(frozen=True, eq=False)
class Source:
    """The records of a source."""

    name: str
    connector: Connector
    schema: Schema
    options: SourceOptions
    origin: Origin | None = None

    @property
    def read(self) -> Schema:
        """The columns that are read: all except a computed event time and the processing time."""
        computed = self.options.event_time if self.options.computed_time is not None else None
        return Schema.of(f for f in self.schema if f.name not in (computed, self.options.processing_time))


@dataclass(frozen=True, eq=False)
class Where:
    """Keep the rows for which the condition is true."""

    input: Step
    condition: Expr

    @cached_property
    def schema(self) -> Schema:
        """The columns are unchanged."""
        return self.input.schema


@dataclass(frozen=True, eq=False)
class Select:
    """Compute new columns from the old ones; columns that are not named are dropped."""

    input: Step
    columns: Named
    schema: Schema
    after: tuple[tuple[str, str], ...] = ()
    """Columns that are ends of windows over a time: their names, each with the time that precedes it."""


@dataclass(frozen=True, eq=False)
class FlatMap:
    """One row per element of an array, in column `name`."""

    input: Step
    name: str
    array: Expr
    keep_empty: bool
    schema: Schema


@dataclass(frozen=True, eq=False)
class MapBatches:
    """A Python function over batches of rows."""

    input: Step
    function: Callable[[Any], Any]
    takes: str
    schema: Schema
    origin: Origin | None = None


@dataclass(frozen=True, eq=False)
class Enrich:
    """Join each row to a stored table by equal columns."""

    input: Step
    table: str
    on: tuple[tuple[str, str], ...]
    columns: tuple[Field, ...]
    required: bool
    schema: Schema
    origin: Origin | None = None


@dataclass(frozen=True, eq=False)
class Union:
    """The rows of several streams with the same columns; `ordered`: held until they can be emitted
    in event-time order.
    """

    inputs: tuple[Step, ...]
    ordered: bool = False

    @cached_property
    def schema(self) -> Schema:
        """The columns of the first input."""
        return self.inputs[0].schema


@dataclass(frozen=True, eq=False)
class Aggregated:
    """Aggregates per key and window."""

    input: Step
    keys: Named
    windowing: Windowing
    aggregates: tuple[tuple[str, Aggregate], ...]
    origin: Origin | None = None
    totals: tuple[int, ...] = ()
    """The numbers of the grouping sets without keys; the last key identifies the set of a row. Each is one group, which
    exists even without rows.
    """

    @cached_property
    def schema(self) -> Schema:
        """Window bounds, keys, then the aggregates."""
        borders = [Field(name, pa.int64() if name == INDEX else TIMESTAMP) for name in borders_of(self.windowing)]
        before = self.input.schema
        keys = [Field(name, e.type_in(before)) for name, e in self.keys]
        results = [Field(name, result_type(a, before)) for name, a in self.aggregates]
        return Schema.of([*borders, *keys, *results])


@dataclass(frozen=True, eq=False)
class Order:
    """A sort key. By default NULL sorts below every value, as in Spark.

    >>> order = Order.parse("price * 2 desc")
    >>> order.by.spark(), order.descending, order.nulls_first
    ('`price` * 2', True, False)
    """

    by: Expr
    descending: bool = False
    nulls_first: bool = True

    @classmethod
    def parse(cls, text: str | Expr) -> Order:
        """Parse an expression that may be followed by ASC or DESC, and NULLS FIRST or NULLS LAST."""
        if isinstance(text, Expr):
            return cls(text)
        if not isinstance(text, str):
            raise DefinitionError(f"{text!r} is not a sort order", hint='e.g. "price DESC"', origin=here())
        nulls = re.search(r"\s+NULLS\s+(FIRST|LAST)\s*$", text, re.IGNORECASE)
        rest = text[: nulls.start()] if nulls else text
        way = re.search(r"\s+(ASC|DESC)\s*$", rest, re.IGNORECASE)
        descending = way is not None and way[1].upper() == "DESC"
        first = not descending if nulls is None else nulls[1].upper() == "FIRST"
        return cls(expr(rest[: way.start()] if way else rest), descending, first)


@dataclass(frozen=True, eq=False)
class Top:
    """The first rows of each key in an order; `rank` names a column with the row number."""

    input: Step
    keys: Named
    count: int
    order: tuple[Order, ...]
    rank: str | None = None
    origin: Origin | None = None

    @property
    def added(self) -> Named:
        """The keys that are not columns of the row yet."""
        return tuple((name, e) for name, e in self.keys if plain_column(e) != name)

    @cached_property
    def schema(self) -> Schema:
        """All columns of the rows, computed keys, then the rank."""
        before = self.input.schema
        keys = [Field(name, e.type_in(before)) for name, e in self.added]
        return Schema.of([*before, *keys, *([] if self.rank is None else [Field(self.rank, pa.int64())])])


@dataclass(frozen=True, eq=False)
class Distinct:
    """Every distinct row once."""

    input: Step
    origin: Origin | None = None

    @cached_property
    def schema(self) -> Schema:
        """The columns are unchanged."""
        return self.input.schema


INDEX = "window_index"


def borders_of(windowing: Windowing) -> tuple[str, ...]:
    """The columns of a result that identify its window."""
    if windowing.window.is_global:
        return ()
    counted = (INDEX,) if isinstance(windowing.window, CountWindow) else ()
    return (*counted, "window_start", "window_end")


@dataclass(frozen=True, eq=False)
class View:
    """A named result: stored as a table that can be queried, written to a sink, or both."""

    name: str
    input: Step
    retention: Duration | None
    origin: Origin | None = None
    sink: Sink | None = None
    kept: bool = True
    state_ttl: Duration | None = None
    """How long downstream stages keep rows without updates."""
    on_error: str = QUARANTINE
    """What happens to a row on which one of its expressions fails."""

    @property
    def schema(self) -> Schema:
        """The columns of its rows."""
        return self.input.schema

    @property
    def _heading(self) -> str:
        return describe.title("View" if self.kept else "Sink", self.name, reads(self.input))

    def __repr__(self) -> str:
        return describe.line(self._heading, self.schema)

    def _repr_html_(self) -> str:
        return describe.html(self._heading, self.schema)


Two = Joined | JoinedAsOf | Compared
"""The steps with two inputs, `left` and `right`."""
Called = Processed | Asked | Matched
"""The steps that process the rows of a key one after another."""
Keeping = (
    Aggregated
    | Top
    | Distinct
    | Two
    | Windowed
    | Settling
    | Gathered
    | Changelog
    | Called
    | Iterated
    | TableRows
    | Temporal
    | StatefulStep
)
"""The stateful steps; rows after them may change."""
Step = Source | Where | Select | FlatMap | MapBatches | Enrich | Union | Keeping | Round


def inputs(step: Step) -> tuple[Step, ...]:
    """The inputs of this step."""
    if isinstance(step, Source | Round | TableRows):
        return ()
    if isinstance(step, Two):
        return (step.left, step.right)
    if isinstance(step, Iterated):
        return (step.input, *outside(step.body, step.round))
    return step.inputs if isinstance(step, Union) else (step.input,)


def upstream(step: Step) -> Iterator[Step]:
    """This step and all steps upstream of it, nearest first."""
    yield step
    for before in inputs(step):
        yield from upstream(before)


def reads(step: Step) -> tuple[str, ...]:
    """The names of the sources and stored tables upstream of a step."""
    return tuple(dict.fromkeys(s.name for s in upstream(step) if isinstance(s, Source | TableRows) and s.name))


def changes(step: Step) -> bool:
    """Whether rows at this step may change: it is stateful, or a step upstream is."""
    return any(isinstance(s, Keeping) for s in upstream(step))


def plain_column(expression: Expr) -> str | None:
    """The column that an expression consists of; None if it computes something."""
    names = expression.columns()
    return names[0] if len(names) == 1 and expression.spark() == f"`{names[0]}`" else None


def result_type(aggregate: Aggregate, schema: Schema) -> pa.DataType | None:
    """The type of an aggregate's result, if known before the engine binds the plan."""
    kind = aggregate.kind
    if kind == "user":
        return aggregate.returns
    settled = settled_type(kind)
    if kind in STRUCTS or (settled is not None and kind not in SPANS_TOO):  # the engine knows the type of a pair
        return settled
    of = aggregate.argument.type_in(schema) if aggregate.argument is not None else None
    if settled is not None:
        return settled_type(kind, of)
    return None if of is None else summed_type(kind, of)


def summed_type(kind: str, of: pa.DataType) -> pa.DataType:
    """The type of a sum over values of a type, or of an aggregate that returns such values."""
    if kind not in ("sum", "sum_distinct") or pa.types.is_duration(of):
        return typed_by(kind, of)
    if pa.types.is_integer(of):
        return pa.int64()
    if pa.types.is_decimal(of):
        return pa.decimal128(min(38, of.precision + 10), of.scale)
    return pa.float64()
