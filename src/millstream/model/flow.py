"""Flows: sources and views under one name. A flow describes; `Home.start` runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa

from millstream.errors import DefinitionError, DuplicateName, SchemaError
from millstream.model import describe
from millstream.model.connector import Connector
from millstream.model.connectors import check_name
from millstream.model.expression import Expr, boolean, expr
from millstream.model.guarantees import EXACTLY_ONCE, FLOW_GUARANTEES
from millstream.model.origin import here
from millstream.model.python.function import Function
from millstream.model.reserved import check_user_columns
from millstream.model.source_options import Corrections, SourceOptions
from millstream.model.steps.relational import OneRow, TableRows
from millstream.model.steps.step import Source, View
from millstream.model.streams.stream import Stream
from millstream.model.types.duration import Duration
from millstream.model.types.schema import TIMESTAMP, Field, Schema, ddl_type


class Flow:
    """A continuous computation: sources, steps and views. Building it runs nothing.

    `guarantee` says what a failure may do to the results: with ``exactly_once`` nothing; with ``at_least_once`` sinks
    may get the changes of the last epoch a second time; with ``at_most_once`` the flow goes on with empty state at the
    newest records and says how many it left out.

    >>> import millstream as ms
    >>> flow = ms.Flow("auctions")
    >>> bids = flow.source("bids", ms.memory(), schema="auction BIGINT, price BIGINT, ts TIMESTAMP", event_time="ts")
    >>> view = bids.key_by("auction").aggregate(bids=ms.count()).view("bids_per_auction")
    >>> [v.name for v in flow.views]
    ['bids_per_auction']
    """

    def __init__(self, name: str, *, guarantee: str = EXACTLY_ONCE) -> None:
        check_name(name, "flow")
        if name == "checkpoint":
            raise DefinitionError("a flow cannot be called `checkpoint`: checkpoints are", origin=here())
        if guarantee not in FLOW_GUARANTEES:
            raise DefinitionError(
                f"guarantee={guarantee!r} of the flow `{name}`",
                hint="one of: " + ", ".join(FLOW_GUARANTEES),
                origin=here(),
            )
        self.name = name
        self.guarantee = guarantee
        self._sources: dict[str, Source] = {}
        self._views: dict[str, View] = {}
        self.functions: dict[str, Function] = {}
        """Python functions that its expressions call, by name; given by SQL's CREATE FUNCTION."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources, in the order they were declared."""
        return tuple(self._sources.values())

    @property
    def views(self) -> tuple[View, ...]:
        """The views, in the order they were declared."""
        return tuple(self._views.values())

    def table(self, name: str, *, schema: str | Schema) -> Stream:
        """The rows of a stored table (see `Home.put_table`) as a stream: what is computed from them is revised when the
        table changes. (`Stream.enrich` adds columns of a table as it is when a row comes, and leaves them so.)

        >>> import millstream as ms
        >>> flow = ms.Flow("shop")
        >>> bids = flow.source("bids", ms.memory(), schema="auction BIGINT, price BIGINT")
        >>> items = flow.table("items", schema="auction BIGINT, name STRING")
        >>> bids.join(items, on="auction").schema.names
        ('auction', 'price', 'name')
        """
        check_name(name, "table")
        columns = schema if isinstance(schema, Schema) else Schema.parse(schema)
        check_user_columns(columns.names)
        return Stream(self, TableRows(name, columns, here()))

    def _one_row(self, column: str) -> Stream:
        """A stream of one row with one column, TRUE, that never changes."""
        return Stream(self, OneRow("", Schema.of([Field(column, pa.bool_())]), here()))

    def source(
        self,
        name: str,
        connector: Connector,
        *,
        schema: str | Schema | pa.Schema | None = None,
        event_time: str | Mapping[str, str | Expr] | None = None,
        lateness: str | timedelta | Duration | None = None,
        punctuation: str | Expr | None = None,
        future_bound: str | timedelta | Duration = "10 minutes",
        idle_timeout: str | timedelta | Duration | None = None,
        max_rows: int | None = None,
        key: str | Sequence[str] | None = None,
        op: str | None = None,
        version: str | None = None,
        processing_time: str | None = None,
    ) -> Stream:
        """Declare a source.

        `event_time` names the TIMESTAMP column that says when a record happened; without one, records happen when
        they are read. ``{"ts": "timestamp_millis(ms)"}`` computes it from the columns that are read, and adds it to
        them; records for which that fails or gives NULL go to ``<source>$errors``. `lateness` (none unless said) is how
        far behind the newest record one may still arrive in time.
        Instead, `punctuation` may name the records that say how far their partition has come: a condition; a record
        for which it is true promises that none of its partition with an earlier event time will follow, and no other
        moves the watermark. Records more than `future_bound` ahead of the clock go to ``<source>$errors``.
        With an `idle_timeout` the watermark goes on without a partition that is silent for so long, and with the
        clock when all are. `max_rows` bounds how much one epoch takes from it.

        With a `key`, a record revises the earlier one with the same key, in all windows that still take records. `op`
        names a column that says so (``D``, ``DELETE``, ``-D`` and ``-U`` delete, all else inserts or updates);
        `version` names a number by which an older version that comes later is told and left out.

        `processing_time` adds a TIMESTAMP column of this name beside the event time: the clock of the epoch that reads
        the record, which is the same again when the epoch is run again.
        """
        check_name(name, "source")
        if not isinstance(connector, Connector):
            raise DefinitionError(
                f"{connector!r} is not something to read from",
                hint='e.g. ms.files("data/bids", format="json")',
                origin=here(),
            )
        connector = connector.as_source()
        columns = _schema(connector, schema, name)
        computed: str | None = None
        if isinstance(event_time, Mapping):
            event_time, computed = _computed_time(event_time, columns)
            columns = Schema.of([*columns, Field(event_time, TIMESTAMP)])
        check_user_columns(columns.names)
        self._refuse_taken(name)
        if event_time is not None:
            kind = columns.field(event_time, origin=here()).type
            if kind is None or not pa.types.is_timestamp(kind):
                raise SchemaError(
                    f"event_time=`{event_time}` is {kind}, not a TIMESTAMP",
                    hint=f"declare it as `{event_time} TIMESTAMP`",
                    origin=here(),
                )
        options = SourceOptions(
            event_time,
            Duration.not_negative("0 seconds" if lateness is None else lateness, what="lateness"),
            Duration.not_negative(future_bound, what="future_bound"),
            None if idle_timeout is None else Duration.positive(idle_timeout, what="idle_timeout"),
            max_rows,
            None if punctuation is None else _punctuation(punctuation, columns, event_time, lateness),
            _corrections(columns, key, op, version),
            computed,
            processing_time,
        )
        if computed is not None and options.punctuation is not None:
            said = {str(event_time): expr(str(options.time_sql))}
            options = replace(options, punctuation=expr(options.punctuation).substitute(said).spark())
        if max_rows is not None and not 0 < max_rows < 2**63:
            raise DefinitionError(f"max_rows must be above zero and fit into BIGINT, not {max_rows}", origin=here())
        if processing_time is not None:
            columns = _with_processing_time(columns, processing_time, event_time)
        step = Source(name, connector, columns, options, here())
        self._sources[name] = step
        return Stream(self, step)

    def add_view(self, view: View) -> None:
        """Register a view; called by `Stream.view`."""
        self._refuse_taken(view.name)
        self._views[view.name] = view

    def _refuse_taken(self, name: str) -> None:
        if name.lower() in {
            n.lower() for n in (*self._sources, *self._views)
        }:  # the store tells no upper from lower case
            raise DuplicateName(
                f"the flow `{self.name}` has a `{name}` already",
                hint="every source and view of a flow needs its own name",
                origin=here(),
            )

    def __repr__(self) -> str:
        sizes = (len(self._sources), "source"), (len(self._views), "view")
        counts = ", ".join(f"{n} {what}{'' if n == 1 else 's'}" for n, what in sizes)
        sources = [describe.line(describe.title("Source", s.name, ()), s.schema) for s in self.sources]
        return "\n  ".join([f"<Flow {self.name}: {counts}, {self.guarantee}>", *sources, *map(repr, self.views)])


def _with_processing_time(columns: Schema, name: str, event_time: str | None) -> Schema:
    """The columns of a source with the time of processing beside its event time."""
    if event_time is None:
        raise DefinitionError(
            f"processing_time=`{name}` needs an event_time beside it",
            detail="without one, records happen when they are read, and windows go by the clock",
            hint="leave processing_time out, or name the event_time",
            origin=here(),
        )
    check_user_columns([name])
    return Schema.of([*columns, Field(name, TIMESTAMP)])


def _computed_time(given: Mapping[str, str | Expr], columns: Schema) -> tuple[str, str]:
    """The name and the Spark SQL of an event time that is computed."""
    if len(given) != 1:
        raise DefinitionError(
            "a source has one event time", hint='event_time={"ts": "timestamp_millis(ms)"}', origin=here()
        )
    ((name, said),) = given.items()
    check_name(name, "column")
    if name in columns:
        raise SchemaError(
            f"event_time=`{name}` is computed, and a column of the source, too",
            hint="give the computed one another name",
            origin=here(),
        )
    bound = expr(said).bind(columns)
    kind = bound.type_in(columns)
    if kind is not None and not pa.types.is_timestamp(kind):
        raise SchemaError(
            f"event_time=`{name}` is computed as `{bound.spark()}`, which is {ddl_type(kind)}, not a TIMESTAMP",
            hint="e.g. timestamp_millis(ms), or to_timestamp(text, 'yyyy-MM-dd HH:mm:ss')",
            origin=here(),
        )
    return name, bound.spark()


def _corrections(
    columns: Schema, key: str | Sequence[str] | None, op: str | None, version: str | None
) -> Corrections | None:
    if key is None:
        if op is not None or version is not None:
            raise DefinitionError(
                "a source with op or version needs a key: the columns that name a record",
                hint="e.g. key='order_id'",
                origin=here(),
            )
        return None
    names = (key,) if isinstance(key, str) else tuple(key)
    if not names:
        raise DefinitionError("the key of a source needs at least one column", origin=here())
    for name in names:
        columns.field(name, origin=here())
    for named, what, fits in ((op, "op", pa.types.is_string), (version, "version", pa.types.is_integer)):
        kind = None if named is None else columns.field(named, origin=here()).type
        if kind is not None and not fits(kind):
            wanted = "STRING" if what == "op" else "BIGINT"
            raise SchemaError(f"{what}=`{named}` is {kind}, not {wanted}", origin=here())
    return Corrections(names, op, version)


def _punctuation(condition: str | Expr, columns: Schema, event_time: str | None, lateness: object) -> str:
    if event_time is None:
        raise DefinitionError("punctuation needs an event_time to speak of", origin=here())
    if lateness is not None:
        raise DefinitionError(
            "a source has either lateness or punctuation",
            detail="with punctuation the records themselves say how far the watermark has come",
            hint="leave one of them out",
            origin=here(),
        )
    return boolean(condition, columns, "punctuation").spark()


def _schema(connector: Connector, schema: str | Schema | pa.Schema | None, name: str) -> Schema:
    if schema is None:
        schema = connector.known_schema
    if schema is None:
        raise SchemaError(
            f"the source `{name}` needs a schema",
            hint='e.g. schema="auction BIGINT, price BIGINT, ts TIMESTAMP"',
            origin=here(),
        )
    if isinstance(schema, pa.Schema):
        return Schema.from_arrow(schema)
    return schema if isinstance(schema, Schema) else Schema.parse(schema)
