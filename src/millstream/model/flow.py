"""Flows: a named set of sources and views. A flow is a description; `Home.start` runs it."""

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
from millstream.model.steps.relations.stored_table import OneRow, TableRows
from millstream.model.steps.step import Source, View
from millstream.model.streams.stream import Stream
from millstream.model.types.duration import Duration
from millstream.model.types.schema import TIMESTAMP, Field, Schema, ddl_type


class Flow:
    """A continuous computation: sources, steps and views. Building it runs nothing.

    `guarantee` defines how a failure may affect the results. With ``exactly_once`` it does not affect them. With
    ``at_least_once`` sinks may receive the changes of the last epoch twice. With ``at_most_once`` the flow resumes with
    empty state at the newest records and reports how many it skipped.

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
            raise DefinitionError(
                "a flow cannot be called `checkpoint`: the name is reserved for checkpoints", origin=here()
            )
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
        """Python functions that expressions may call, by name. SQL's CREATE FUNCTION registers them."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources, in declaration order."""
        return tuple(self._sources.values())

    @property
    def views(self) -> tuple[View, ...]:
        """The views, in declaration order."""
        return tuple(self._views.values())

    def table(self, name: str, *, schema: str | Schema) -> Stream:
        """The rows of a stored table (see `Home.put_table`) as a stream.

        Results that depend on the table are revised when the table changes. (`Stream.enrich`, in contrast, adds columns
        from the table as it is when a row arrives, and does not revise them.)

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
        """A stream of one constant row with one column, TRUE."""
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

        `event_time` names the TIMESTAMP column with the time at which a record happened. Without one, the event time is
        the time at which the record is read. ``{"ts": "timestamp_millis(ms)"}`` computes the event time from the
        columns that are read, and adds it as a column; records for which the expression fails or returns NULL go to
        ``<source>$errors``.

        `lateness` (zero by default) is how far a record may lag the newest record and still be on time. Use
        `punctuation` instead if some records mark the progress of their partition. It is a condition; a record for
        which it is true guarantees that no record of its partition with an earlier event time will follow. Only such
        records advance the watermark. Records more than `future_bound` ahead of the clock go to ``<source>$errors``.
        With an `idle_timeout` the watermark no longer waits for a partition that has been silent for this long, and
        follows the clock when all partitions are silent. `max_rows` limits how many rows one epoch reads from the
        source.

        With a `key`, a record revises the earlier record with the same key, in all windows that still accept records.
        `op` names a column with the operation (``D``, ``DELETE``, ``-D`` and ``-U`` delete; every other value inserts
        or updates). `version` names a numeric column; a record with an older version that arrives later is ignored.

        `processing_time` adds a TIMESTAMP column of this name in addition to the event time. It holds the clock of the
        epoch that reads the record, and has the same value if the epoch runs again.
        """
        check_name(name, "source")
        if not isinstance(connector, Connector):
            raise DefinitionError(
                f"{connector!r} is not a source",
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
        """Register a view. `Stream.view` calls this."""
        self._refuse_taken(view.name)
        self._views[view.name] = view

    def _refuse_taken(self, name: str) -> None:
        if name.lower() in {n.lower() for n in (*self._sources, *self._views)}:  # the store is case-insensitive
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
    """The columns of a source with the processing-time column added."""
    if event_time is None:
        raise DefinitionError(
            f"processing_time=`{name}` needs an event_time as well",
            detail="without one, the time of a record is when it is read, and windows follow the clock",
            hint="leave processing_time out, or name the event_time",
            origin=here(),
        )
    check_user_columns([name])
    return Schema.of([*columns, Field(name, TIMESTAMP)])


def _computed_time(computed: Mapping[str, str | Expr], columns: Schema) -> tuple[str, str]:
    """The name and the Spark SQL of a computed event time."""
    if len(computed) != 1:
        raise DefinitionError(
            "a source has one event time", hint='event_time={"ts": "timestamp_millis(ms)"}', origin=here()
        )
    ((name, expression),) = computed.items()
    check_name(name, "column")
    if name in columns:
        raise SchemaError(
            f"event_time=`{name}` is computed, but the source has a column with this name",
            hint="give the computed one another name",
            origin=here(),
        )
    bound = expr(expression).bind(columns)
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
                "a source with op or version needs a key: the columns that identify a record",
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
            expected_type = "STRING" if what == "op" else "BIGINT"
            raise SchemaError(f"{what}=`{named}` is {kind}, not {expected_type}", origin=here())
    return Corrections(names, op, version)


def _punctuation(condition: str | Expr, columns: Schema, event_time: str | None, lateness: object) -> str:
    if event_time is None:
        raise DefinitionError("punctuation needs an event_time", origin=here())
    if lateness is not None:
        raise DefinitionError(
            "a source has either lateness or punctuation",
            detail="with punctuation, the records carry the watermark",
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
