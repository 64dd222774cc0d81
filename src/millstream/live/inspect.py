"""Inspection: the state of a view as a table, and all records that a source currently holds."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from millstream.clock import BEGINNING
from millstream.errors import QueryError, UnknownName, Unsupported
from millstream.limits import Limits
from millstream.model.connectors import LogTopic
from millstream.model.flow import Flow
from millstream.model.steps.step import Source, upstream
from millstream.model.streams.stream import Stream
from millstream.model.types.schema import Schema
from millstream.plan.plan import Plan
from millstream.plan.planner import plan
from millstream.runtime.wiring import source_port
from millstream.sql.bind.binder import Binder
from millstream.sql.connectors import is_on_demand
from millstream.sql.parse.statement_values import CreateSource
from millstream.state.manifest import load_version
from millstream.state.shard import RunCache, StateReader

if TYPE_CHECKING:
    from millstream.live.deployment import Deployment

_COLUMNS = {"$s": "slice_start", "$e": "window_end", "$n": "rows", "$x": "expires"}
_TIMES = ("slice_start", "window_end", "expires")


def state(deployment: Deployment, view: str) -> pa.Table:
    """The state of a view in the last committed epoch: one row per key and slice or window."""
    flow = deployment.flow_of(view)
    planned = deployment.planned(flow)
    operator = next((v.operator for v in planned.views if v.name.lower() == view.lower()), None) if planned else None
    if operator is None:
        raise UnknownName(f"there is no view `{view}`")
    if not operator.stateful:
        raise QueryError(f"the view `{view}` keeps no state: its rows pass through")
    last = deployment.home.store.last(flow)
    if last is None:
        raise QueryError(f"the flow `{flow}` of `{view}` has not committed an epoch yet", hint="try again in a moment")
    cache = RunCache(deployment.home.state.of(flow).runs)
    version = load_version(last.version, cache.storage)
    states = (StateReader(cache, version.of(operator.state_step(s)), list(s.unique)) for s in operator.states)
    rows = next((found for s in states if (found := s.scan(BEGINNING)) is not None and len(found)), None)
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


def history(deployment: Deployment, names: set[str], sql: str, limits: Limits) -> pa.Table:
    """Answer a Spark SQL query over everything that some sources currently hold."""
    from millstream.engine.input.history import answered

    frames: list[tuple[str, Plan, Stream]] = []
    for name in sorted(names):
        flow = Flow("history")
        entry = deployment.catalog.get(name)
        if isinstance(entry, CreateSource):
            if is_on_demand(entry.place):
                raise Unsupported(f"`{name}` generates its records on demand: it has no history")
            stream = Binder(flow, deployment.catalog, {}).named(name).stream
        elif entry is None and deployment.home.log.exists(name):
            known = Schema.from_arrow(deployment.home.log.topic(name).schema, exact=True)
            stream = flow.source(name, LogTopic(name), schema=known)
        else:
            raise deployment.catalog.missing(name, "source or topic")
        stream.view("all_records")
        frames.append((f"history_{name.lower()}", plan(flow), stream))
    spark = deployment.home.engines.warm_up().result()
    now = deployment.home.clock.now()
    inputs = {}
    for alias, planned, stream in frames:
        source = next(s for s in upstream(stream.step) if isinstance(s, Source))
        stage = planned.source(source.name)
        with tempfile.TemporaryDirectory(prefix="millstream-") as folder:
            port = source_port(Path(folder), "history", stage, {}, deployment.home.log, holds=False)
            inputs[alias] = (stage, port, port.admit(port.start() or {}, port.head(now), None), planned)
    return answered(spark, inputs, sql, now, deployment.home.spark_log, limits)
