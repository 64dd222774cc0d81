"""Flows: sources and views under one name. A flow describes; `Home.start` runs it."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa

from millstream.errors import DefinitionError, DuplicateName, SchemaError
from millstream.model.connector import Connector, Files, Generator, Memory, SourceOptions
from millstream.model.duration import Duration
from millstream.model.origin import here
from millstream.model.schema import Schema
from millstream.model.step import Source, View
from millstream.model.stream import Stream, check_name


class Flow:
    """A continuous computation: sources, steps and views. Building it runs nothing.

    >>> import millstream as ms
    >>> flow = ms.Flow("auctions")
    >>> bids = flow.source("bids", ms.memory(), schema="auction BIGINT, price BIGINT, ts TIMESTAMP", event_time="ts")
    >>> view = bids.key_by("auction").aggregate(bids=ms.count()).view("bids_per_auction")
    >>> [v.name for v in flow.views]
    ['bids_per_auction']
    """

    def __init__(self, name: str) -> None:
        check_name(name, "flow")
        self.name = name
        self._sources: dict[str, Source] = {}
        self._views: dict[str, View] = {}

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources, in the order they were declared."""
        return tuple(self._sources.values())

    @property
    def views(self) -> tuple[View, ...]:
        """The views, in the order they were declared."""
        return tuple(self._views.values())

    def source(
        self,
        name: str,
        connector: Connector,
        *,
        schema: str | Schema | pa.Schema | None = None,
        event_time: str | None = None,
        lateness: str | timedelta | Duration = "0 seconds",
        future_bound: str | timedelta | Duration = "10 minutes",
        idle_timeout: str | timedelta | Duration | None = None,
        max_rows: int | None = None,
    ) -> Stream:
        """Declare a source.

        `event_time` names the TIMESTAMP column that says when a record happened; without one, records happen when
        they are read. `lateness` is how far behind the newest record one may still arrive in time. Records more than
        `future_bound` ahead of the clock go to ``<source>$errors``. `idle_timeout` lets the watermark go on without
        a silent partition. `max_rows` bounds how much one epoch takes from it.
        """
        check_name(name, "source")
        if not isinstance(connector, Files | Generator | Memory):
            raise DefinitionError(
                f"{connector!r} is not something to read from",
                hint='e.g. ms.files("data/bids", format="json")',
                origin=here(),
            )
        columns = _schema(connector, schema, name)
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
            Duration.not_negative(lateness, what="lateness"),
            Duration.not_negative(future_bound, what="future_bound"),
            None if idle_timeout is None else Duration.positive(idle_timeout, what="idle_timeout"),
            max_rows,
        )
        if max_rows is not None and max_rows <= 0:
            raise DefinitionError(f"max_rows must be above zero, not {max_rows}", origin=here())
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
        return f"<Flow {self.name}: {len(self._sources)} sources, {len(self._views)} views>"


def _schema(connector: Connector, schema: str | Schema | pa.Schema | None, name: str) -> Schema:
    if schema is None and isinstance(connector, Generator) and connector.schema is not None:
        schema = connector.schema
    if schema is None:
        raise SchemaError(
            f"the source `{name}` needs a schema",
            hint='e.g. schema="auction BIGINT, price BIGINT, ts TIMESTAMP"',
            origin=here(),
        )
    if isinstance(schema, pa.Schema):
        return Schema.from_arrow(schema)
    return schema if isinstance(schema, Schema) else Schema.parse(schema)
