"""What lies inside: the state of a view as a table, and all records that a source holds now."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from millstream import paths
from millstream.clock import BEGINNING
from millstream.errors import QueryError, UnknownName, Unsupported
from millstream.kernels.stage import unique
from millstream.limits import Limits
from millstream.model.connectors import LogTopic
from millstream.model.flow import Flow
from millstream.model.steps.step import Source, upstream
from millstream.model.streams.stream import Stream
from millstream.model.types.schema import Schema
from millstream.plan.planner import plan
from millstream.plan.stages import Plan
from millstream.runtime.wiring import source_port
from millstream.sql.bind.binder import Binder
from millstream.sql.parse.statements import CreateSource
from millstream.state.shard import RunCache, StateReader
from millstream.state.version import Version

if TYPE_CHECKING:
    from millstream.live.deployment import Live

_COLUMNS = {"$s": "slice_start", "$e": "window_end", "$n": "rows", "$x": "expires"}
_TIMES = ("slice_start", "window_end", "expires")


def state(live: Live, view: str) -> pa.Table:
    """What the last committed epoch keeps for a view: one row per key and slice or window."""
    flow = live.flow_of(view)
    planned = live.planned(flow)
    stage = next((v.stage for v in planned.views if v.name.lower() == view.lower()), None) if planned else None
    if stage is None:
        raise UnknownName(f"there is no view `{view}`")
    if planned is not None and stage not in planned.stateful:
        raise QueryError(f"the view `{view}` keeps no state: its rows go on as they come")
    last = live.home.store.last(flow)
    if last is None:
        raise QueryError(f"the flow `{flow}` of `{view}` has not committed an epoch yet", hint="ask again in a moment")
    reader = StateReader(
        RunCache(paths.flow_folder(live.home.path, flow) / "state"),
        Version.from_json(last.version).of(stage.step),
        unique(stage),
    )
    rows = reader.scan(BEGINNING)
    if rows is None:
        return pa.table({"rows": pa.array([], pa.int64())})
    if "$gone" in rows.columns:
        rows = rows.filter(~pl.col("$gone"))
    named = rows.rename({c: n for c, n in _COLUMNS.items() if c in rows.columns and n not in rows.columns})
    named = named.with_columns(
        pl.when(pl.col(c).is_between(-(10**17), 10**17)).then(pl.col(c)).cast(pl.Datetime("us", "UTC")).alias(c)
        for c in _TIMES
        if c in named.columns and named[c].dtype == pl.Int64
    )
    return named.select(c for c in named.columns if not c.startswith("$")).to_arrow()


def history(live: Live, names: set[str], sql: str, limits: Limits) -> pa.Table:
    """Answer a question of Spark SQL over all that some sources hold now."""
    from millstream.engine.input.history import answered
    from millstream.engine.spark import session

    frames: list[tuple[str, Plan, Stream]] = []
    for name in sorted(names):
        flow = Flow("history")
        entry = live.catalog.get(name)
        if isinstance(entry, CreateSource):
            stream = Binder(flow, live.catalog, {}).named(name).stream if entry.place.kind != "GENERATOR" else None
        elif entry is None and live.home.log.exists(name):
            known = Schema.from_arrow(live.home.log.topic(name).schema, exact=True)
            stream = flow.source(name, LogTopic(name), schema=known)
        else:
            raise live.catalog.missing(name, "source or topic")
        if stream is None:
            raise Unsupported(f"`{name}` makes its records as they are asked for: it has no history")
        stream.view("all_records")
        frames.append((f"history_{name.lower()}", plan(flow), stream))
    spark = session.start(live.home.spark_log, memory=live.home._memory)
    now = live.home.clock.now()
    given = {}
    for alias, planned, stream in frames:
        source = next(s for s in upstream(stream.step) if isinstance(s, Source))
        stage = planned.source(source.name)
        with tempfile.TemporaryDirectory(prefix="millstream-") as folder:
            port = source_port(Path(folder), "history", stage, {}, live.home.log, holds=False)
            given[alias] = (stage, port, port.admit(port.start() or {}, port.head(now), None), planned)
    return answered(spark, given, sql, now, live.home.spark_log, limits)
