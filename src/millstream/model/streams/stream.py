"""`Stream`: the central class of the public API. Each method returns a new stream; nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import DefinitionError, SchemaError, Unsupported
from millstream.model import describe
from millstream.model.aggregates.aggregate import Aggregate
from millstream.model.connector import Sink
from millstream.model.connectors import check_name
from millstream.model.error_policy import QUARANTINE, checked_on_error
from millstream.model.expression import Expr, boolean, col, expr, has_clock
from millstream.model.origin import here
from millstream.model.steps.aggregation import Aggregated
from millstream.model.steps.columns import Named
from millstream.model.steps.deduplicate import deduplicated
from millstream.model.steps.event_times import times_of
from millstream.model.steps.fill import filled_aggregate
from millstream.model.steps.relations.distinct import Distinct
from millstream.model.steps.step import (
    Enrich,
    FlatMap,
    Keeping,
    MapBatches,
    Select,
    Source,
    Step,
    Union,
    View,
    Where,
    changes,
    reads,
    upstream,
)
from millstream.model.steps.temporal_conditions import filtered, spans
from millstream.model.streams.keyed import Keyed, named_columns
from millstream.model.streams.patterns import Matches
from millstream.model.streams.python_operators import Operators
from millstream.model.streams.relations import Relations
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Field, Schema, ddl_type
from millstream.model.windows.accumulation import Accumulation
from millstream.model.windows.kinds import AnyWindow
from millstream.model.windows.trigger import ON_CHANGE, Trigger

if TYPE_CHECKING:
    from millstream.model.flow import Flow

BATCH_KINDS = ("arrow", "pandas", "polars")


@dataclass(frozen=True, eq=False)
class Stream(Relations, Operators, Matches):
    """A stream of rows in a flow. Created by `Flow.source` and by the methods below."""

    flow: Flow
    step: Step

    @property
    def _heading(self) -> str:
        named = self.step.name if isinstance(self.step, Source) else ""
        return describe.title("Stream", named, () if named else reads(self.step), f"flow {self.flow.name}")

    def __repr__(self) -> str:
        return describe.line(self._heading, self.schema)

    def _repr_html_(self) -> str:
        return describe.html(self._heading, self.schema)

    def where(self, condition: str | Expr) -> Stream:
        """Keep the rows for which the condition is true: ``.where("price > 100")``.

        A condition may compare the current time with a time of the row: ``.where("ts > now() - INTERVAL '1' HOUR")``.
        Rows then appear and disappear as time passes, according to the clock of the epochs.
        """
        predicate = boolean(condition, self.schema, "where", clock=True)
        if not has_clock(predicate.node):
            return Stream(self.flow, Where(self.step, predicate))
        clock_spans = spans(predicate, self.schema)
        stream = self if clock_spans.plain is None else Stream(self.flow, Where(self.step, clock_spans.plain))
        stream._refuse_panes("a condition with now()")
        return stream._with(filtered(stream.step, clock_spans))

    def select(self, /, *columns: str | Expr, **named: str | Expr) -> Stream:
        """Keep or compute columns: ``.select("auction", euros="price * 0.908")``."""
        return self._project(named_columns(columns, named, "select"))

    def with_columns(self, /, **named: str | Expr) -> Stream:
        """Add columns, or replace columns of the same name; the others stay."""
        if not named:
            raise DefinitionError("with_columns needs at least one name=expression", origin=here())
        kept = [(n, col(n)) for n in self.schema.names if n not in named]
        replaced = {n: expr(e) for n, e in named.items()}
        order = [(n, replaced.pop(n)) if n in replaced else (n, dict(kept)[n]) for n in self.schema.names]
        return self._project((*order, *replaced.items()))

    def flat_map(self, /, *, keep_empty: bool = False, **array: str | Expr) -> Stream:
        """One row per element of an array: ``.flat_map(word="split(text, ' ')")``.

        Rows whose array is empty or NULL are dropped. With `keep_empty` they are kept, and the element is NULL.
        """
        if len(array) != 1:
            raise DefinitionError("flat_map takes one name=array", hint="e.g. flat_map(tag='tags')", origin=here())
        ((name, text),) = array.items()
        return self._flattened(name, text, keep_empty=keep_empty)

    def _flattened(self, name: str, text: str | Expr, *, keep_empty: bool = False) -> Stream:
        """One row per element of an array, in a column of any name."""
        self._refuse_panes("flat_map")
        check_name(name, "column")
        bound = expr(text).bind(self.schema)
        kind = bound.type_in(self.schema)
        if kind is not None and not (pa.types.is_list(kind) or pa.types.is_map(kind)):
            raise SchemaError(f"flat_map needs an array, but `{bound.spark()}` is {kind}", origin=here())
        element = kind.value_type if kind is not None and pa.types.is_list(kind) else None
        fields = [f for f in self.schema if f.name != name] + [Field(name, element)]
        return Stream(self.flow, FlatMap(self.step, name, bound, keep_empty, Schema.of(fields)))

    def map_batches(self, function: Callable[[Any], Any], *, schema: str | Schema, takes: str = "arrow") -> Stream:
        """Run a Python function over batches of rows.

        `takes` selects the batch type that the function receives and returns: a pyarrow Table, a pandas DataFrame or a
        polars DataFrame. The function must be deterministic and must not depend on batch boundaries. The source's
        ``event_time`` column keeps its meaning only if the function returns it; see docs/guide/steps.md.
        """
        self._refuse_panes("map_batches")
        if not callable(function):
            raise DefinitionError(f"{function!r} is not a function", hint="def make(table): ...", origin=here())
        if takes not in BATCH_KINDS:
            raise DefinitionError(f"takes={takes!r}", hint="one of: " + ", ".join(BATCH_KINDS), origin=here())
        out = schema if isinstance(schema, Schema) else Schema.parse(schema)
        return Stream(self.flow, MapBatches(self.step, function, takes, out, here()))

    def enrich(
        self,
        table: str,
        *,
        on: str | Mapping[str, str],
        columns: str | Schema,
        required: bool = False,
    ) -> Stream:
        """Add columns of a stored table (see `Home.put_table`), matched by equal values.

        `on` is a column that both have, or ``{"my_column": "table_column"}``. `columns` lists the columns to add, with
        their types, e.g. ``"name STRING, region STRING"``. Rows without a match have NULLs; with `required` they are
        dropped.
        """
        self._refuse_after_aggregate("enrich")
        check_name(table, "table")
        pairs = ((on, on),) if isinstance(on, str) else tuple(on.items())
        if not pairs:
            raise DefinitionError("enrich needs `on`: the columns to match by", hint="e.g. on='auction'", origin=here())
        for mine, _ in pairs:
            self.schema.field(mine, origin=here())
        added = columns if isinstance(columns, Schema) else Schema.parse(columns)
        for new in added:
            if new.name in self.schema:
                raise SchemaError(
                    f"enrich would add a second column `{new.name}`",
                    hint="rename the stream's own first: .select(..., other_name='" + new.name + "')",
                    origin=here(),
                )
        schema = Schema.of([*self.schema, *added])
        return Stream(self.flow, Enrich(self.step, table, pairs, added.fields, required, schema, here()))

    def union(self, *others: Stream) -> Stream:
        """All rows of this stream and the others. Their columns must have the same names and types."""
        return self._united(others, ordered=False)

    def _united(self, others: tuple[Stream, ...], *, ordered: bool) -> Stream:
        for other in others:
            if other.flow is not self.flow:
                raise DefinitionError("only streams of one flow can be united", origin=here())
            if other.schema.names != self.schema.names:
                raise SchemaError(
                    "the streams of a union have different columns",
                    detail=f"{', '.join(self.schema.names)}  against  {', '.join(other.schema.names)}",
                    hint="bring them into the same shape with .select(...)",
                    origin=here(),
                )
            for mine, theirs in zip(self.schema, other.schema, strict=True):
                if mine.type is not None and theirs.type is not None and mine.type != theirs.type:
                    raise SchemaError(
                        f"the column `{mine.name}` is {ddl_type(mine.type)} in one part of the union "
                        f"and {ddl_type(theirs.type)} in another",
                        hint=f"cast one of them: CAST({theirs.name} AS {ddl_type(mine.type)})",
                        origin=here(),
                    )
        united = Stream(self.flow, Union((self.step, *(o.step for o in others)), ordered))
        if ordered:
            united._refuse_after_aggregate("merge")
        united._refuse_panes("a union")
        return united

    def key_by(self, /, *columns: str | Expr, **named: str | Expr) -> Keyed:
        """Group by columns or named expressions: ``.key_by("auction", day="date(ts)")``."""
        keys = tuple((n, e.bind(self.schema)) for n, e in named_columns(columns, named, "key_by"))
        return Keyed(self, keys)

    def window(
        self,
        window: AnyWindow,
        *,
        trigger: Trigger = ON_CHANGE,
        accumulation: Accumulation = Accumulation.RETRACTING,
        lateness: str | timedelta | Duration = "0 seconds",
        panes: str | timedelta | Duration | None = None,
    ) -> Keyed:
        """Windows over the whole stream, without a key; see `Keyed.window`."""
        return Keyed(self, ()).window(
            window, trigger=trigger, accumulation=accumulation, lateness=lateness, panes=panes
        )

    def aggregate(self, /, **aggregates: Aggregate) -> Stream:
        """Aggregates over the whole stream, without key or window; see `Keyed.aggregate`."""
        return Keyed(self, ()).aggregate(**aggregates)

    def top(self, n: int, by: str | Expr, *more: str | Expr, rank: str | None = None) -> Stream:
        """The first `n` rows of the whole stream in an order: ``.top(10, "price DESC")``; see `Keyed.top`."""
        return Keyed(self, ()).top(n, by, *more, rank=rank)

    def distinct(self) -> Stream:
        """Every distinct row once. For changing rows, the distinct current rows.

        >>> import millstream as ms
        >>> bids = ms.Flow("shop").source("bids", ms.memory(), schema="auction BIGINT, price BIGINT")
        >>> bids.select("auction").distinct().schema.names
        ('auction',)
        """
        self._refuse_panes("distinct")
        return Stream(self.flow, Distinct(self.step, here()))

    def fill(self, how: object | Mapping[str, object], *, longest: str | timedelta | Duration | None = None) -> Stream:
        """Add rows for empty windows of a windowed aggregate, between the first and the last window of a key.

        `how` defines the aggregates of the added rows: ``"previous"`` (the value of the previous window), ``"linear"``
        (interpolated to the next value, as DOUBLE), None, or a constant. It applies to all columns, or by column:
        ``{"total": "previous", "n": 0}``. With `longest`, only windows that start within that time after a window with
        rows are filled.

        >>> import millstream as ms
        >>> bids = ms.Flow("shop").source("bids", ms.memory(), schema="auction BIGINT, at TIMESTAMP", event_time="at")
        >>> counts = bids.key_by("auction").window(ms.tumbling("1 minute")).aggregate(n=ms.count())
        >>> counts.fill(0).schema.names
        ('window_start', 'window_end', 'auction', 'n')
        """
        self._refuse_panes("fill")
        return filled_aggregate(self, how, longest)

    def deduplicate(
        self, *columns: str, keep: str = "first", within: str | timedelta | Duration | None = None
    ) -> Stream:
        """Keep one row of those with equal values in `columns` (in all columns, if none is named): the first or the
        last by event time. Equal event times are ordered by the contents of the rows.

        An earlier row that arrives later replaces the row that was shown. With `within`, a row is dropped only if a row
        of its key was kept less than that long before it. Rows are then emitted in order, once the watermark has passed
        them; they never change, and state is not kept longer than `within`.

        >>> import millstream as ms
        >>> bids = ms.Flow("shop").source("bids", ms.memory(), schema="id BIGINT, at TIMESTAMP", event_time="at")
        >>> bids.deduplicate("id", within="10 minutes").schema.names
        ('id', 'at')
        """
        span = None if within is None else Duration.positive(within, what="within")
        return deduplicated(self, columns, keep, span)

    def view(
        self,
        name: str,
        *,
        retention: str | timedelta | Duration | None = None,
        changes_to: Sink | None = None,
        state_ttl: str | timedelta | Duration | None = None,
        on_error: str = QUARANTINE,
    ) -> View:
        """Store the result as a named table that can be queried while the flow runs.

        `retention` is how long rows stay after the watermark has passed them (windows by their end, other rows by their
        event time). Without it they stay permanently. `changes_to` also writes every change of the view to a sink, as
        `sink` does. `state_ttl` bounds the state of joins, aggregates over changing rows and similar steps where
        nothing else bounds it: they expire rows that had no update for this long in event time. If rows arrive even
        later, their results are computed as if the expired rows had never existed.

        `on_error` defines what happens to a row on which an expression fails, for example with a division by zero:
        ``"quarantine"`` moves it to ``<view>$errors``, ``"fail"`` stops the view, and ``"null"`` uses NULL as the value
        of the expression.
        """
        check_name(name, "view")
        kept = None if retention is None else Duration.positive(retention, what="retention")
        if kept is not None:
            self._check_retention(name)
        lives = None if state_ttl is None else Duration.positive(state_ttl, what="state_ttl")
        to = None if changes_to is None else _sink(changes_to, name)
        view = View(name, self.step, kept, here(), to, state_ttl=lives, on_error=checked_on_error(on_error))
        self.flow.add_view(view)
        return view

    def sink(self, name: str, to: Sink) -> View:
        """Write the result to a topic of the log (``.sink("hot", ms.log("hot_auctions"))``), without storing it as a
        table.

        With ``ms.files(folder, format=...)`` each epoch writes a file, with ``ms.console()`` a line per change. The
        rows of an append-only stream are written unchanged. The rows of a changing stream have an additional first
        column ``op``: ``+I`` for a new row, ``-U`` and ``+U`` for the old row and the new row of an update, ``-D`` for
        a deleted row.
        """
        check_name(name, "sink")
        view = View(name, self.step, None, here(), _sink(to, name), kept=False)
        self.flow.add_view(view)
        return view

    def _check_retention(self, name: str) -> None:
        """Reject a retention if no column defines the age of a row."""
        last = next((s for s in upstream(self.step) if isinstance(s, Keeping)), None)
        if last is None:
            return
        if isinstance(last, Aggregated) and not changes(last.input):
            if last.windowing.window.is_global:
                raise DefinitionError(
                    f"the view `{name}` has a retention but no window to measure it by",
                    hint="add .window(...), or leave the retention out",
                    origin=here(),
                )
            return
        if not times_of(last, certain=False):
            raise Unsupported(
                f"the view `{name}` has a retention, but no column with the age of a row",
                hint="key by the `window_end` of the aggregate before, or leave the retention out",
                origin=here(),
            )

    def _with(self, step: Step) -> Stream:
        return Stream(self.flow, step)

    def _project(self, columns: Named) -> Stream:
        bound = tuple((name, e.bind(self.schema)) for name, e in columns)
        schema = Schema.of(Field(name, e.type_in(self.schema)) for name, e in bound)
        return Stream(self.flow, Select(self.step, bound, schema))

    def _refuse_after_aggregate(self, what: str) -> None:
        if changes(self.step):
            raise Unsupported(
                f"{what} after a stateful step is not supported",
                hint="join a stream of the table's rows: .join(flow.table(...), ...)"
                if what == "enrich"
                else "docs/guide/steps.md lists which step can follow which",
                origin=here(),
            )

    def _refuse_panes(self, what: str) -> None:
        """Reject upstream aggregates that do not retract their earlier results."""
        for step in upstream(self.step):
            how = step.windowing.accumulation if isinstance(step, Aggregated) else Accumulation.RETRACTING
            if how is not Accumulation.RETRACTING:
                raise Unsupported(
                    f"{what} cannot follow an aggregate whose panes are {how}",
                    detail="it needs to know which results are no longer valid",
                    hint="use accumulation=ms.retracting() there",
                    origin=here(),
                )


def merge(stream: Stream, *others: Stream, order: str = "event_time") -> Stream:
    """Merge several streams into one in event-time order, regardless of arrival order.

    A row is held until the watermark of all sources has passed it. Equal times are ordered by source (in argument
    order), partition and offset. A row that arrives after its time has passed goes to ``<view>$late``.
    """
    if order != "event_time":
        raise DefinitionError(f"merge can order by event_time only, not by {order!r}", origin=here())
    for step in (s for source_stream in (stream, *others) for s in upstream(source_stream.step)):
        if isinstance(step, Source) and step.options.event_time is None:
            raise DefinitionError(
                f"merge needs an event time, and the source `{step.name}` has none",
                hint="declare it: flow.source(..., event_time='ts')",
                origin=here(),
            )
    return stream._united(others, ordered=True)


def _sink(to: object, name: str) -> Sink:
    if not isinstance(to, Sink):
        raise DefinitionError(
            f"{to!r} is not a sink that `{name}` can be written to", hint='e.g. ms.log("topic")', origin=here()
        )
    return to.as_sink()
