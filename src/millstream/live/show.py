"""SHOW, DESCRIBE, EXPLAIN and SET, as tables and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import UnknownName
from millstream.live import sources
from millstream.live.advice import with_upstream
from millstream.live.answer import Answer
from millstream.live.select import rows_of
from millstream.model.flow import Flow
from millstream.model.types.schema import Schema, ddl_type
from millstream.plan.explain import plan_tree as explaining
from millstream.plan.operators.operator import view_of
from millstream.plan.plan import Plan
from millstream.plan.planner import plan
from millstream.result import Result
from millstream.runtime.epoch.part_times import mean_parts
from millstream.runtime.inspect.status import has_failed
from millstream.sql.bind.binder import Binder
from millstream.sql.catalog import schema_of
from millstream.sql.connectors import place_text
from millstream.sql.parse.statement_values import (
    CreateFunction,
    CreateSink,
    CreateSource,
    CreateTable,
    CreateView,
    Describe,
    Explain,
    Show,
)
from millstream.state.manifest import load_version

if TYPE_CHECKING:
    from millstream.live.deployment import Deployment
    from millstream.runtime.epoch.loop import EpochReport


def show(deployment: Deployment, statement: Show) -> Answer:
    """List all objects of a kind."""
    return {
        "SOURCES": _sources,
        "VIEWS": _views,
        "SINKS": _sinks,
        "FLOWS": _flows,
        "TABLES": _tables,
        "FUNCTIONS": _functions,
        "TOPICS": _topics,
    }[statement.kind](deployment)


def settings(values: Mapping[str, Any], known: Mapping[str, tuple[Any, str]]) -> Answer:
    """List the options of a session."""
    return _table(("option", "value", "meaning"), [(n, str(v), known[n][1]) for n, v in values.items()])


def _sources(deployment: Deployment) -> Answer:
    rows = []
    for entry in deployment.catalog.of(CreateSource):
        time = f"{entry.watermark[0]}, lateness {entry.watermark[1]}" if entry.watermark else "when it is read"
        read = [e.name for e in deployment.catalog.dependents(entry.name)]
        rows.append(
            (entry.name, place_text(entry.place, entry.name), time, ", ".join(read), _source_state(deployment, entry))
        )
    return _table(("source", "reads", "event_time", "read_by", "state"), rows)


def _views(deployment: Deployment) -> Answer:
    there = {v["view"]: v for v in deployment.home.view_rows()}
    rows = []
    for entry in deployment.catalog.of(CreateView):
        known = there.pop(entry.name, {})
        flow = deployment.flow_name(entry.name)
        rows.append((entry.name, flow, known.get("rows"), known.get("epoch"), known.get("watermark"),
                     known.get("late", 0), _state(deployment, entry.name, flow)))  # fmt: skip
    for name, known in there.items():
        state = deployment.home.flow_state(known["flow"])
        rows.append((name, known["flow"], known["rows"], known["epoch"], known["watermark"], known["late"], state))
    for name in list(deployment.broken):
        kept = deployment.definitions.entries.get(name)
        if kept is not None and deployment.catalog.get(name) is None and kept.kind == "view":
            rows.append((name, kept.flow, None, None, None, 0, _state(deployment, name)))
    return _table(("view", "flow", "rows", "epoch", "watermark", "late", "state"), rows)


def _sinks(deployment: Deployment) -> Answer:
    rows = []
    for entry in deployment.catalog.of(CreateSink):
        flow = deployment.flow_name(entry.name)
        what = entry.view or ("a query" if entry.query is not None else "nothing yet")
        rows.append((entry.name, what, place_text(entry.place, entry.name), flow, _state(deployment, entry.name, flow)))
    return _table(("sink", "from", "writes", "flow", "state"), rows)


def _flows(deployment: Deployment) -> Answer:
    known = {f["flow"]: f for f in deployment.home.flow_rows()}
    rows = []
    for name in dict.fromkeys([*deployment.flows(), *known]):
        row = known.get(name, {})
        members = [e.name for e in deployment.members(name)] or [
            v["view"] for v in deployment.home.view_rows() if v["flow"] == name
        ]
        rows.append((name, _flow_state(deployment, name), ", ".join(members), row.get("epoch", 0), row.get("rows", 0),
                     row.get("errors", 0), row.get("watermark")))  # fmt: skip
    return _table(("flow", "state", "views", "epoch", "rows", "errors", "watermark"), rows)


def _tables(deployment: Deployment) -> Answer:
    rows = []
    for entry in deployment.catalog.of(CreateTable):
        number = rows_of(deployment.home, f"SELECT count(*) AS n FROM `{entry.name}`")["n"][0].as_py()
        read = [e.name for e in deployment.catalog.dependents(entry.name)]
        rows.append((entry.name, ", ".join(entry.key), number, ", ".join(read)))
    return _table(("table", "key", "rows", "read_by"), rows)


def _functions(deployment: Deployment) -> Answer:
    rows = [(e.name, e.target, e.returns) for e in deployment.catalog.of(CreateFunction)]
    return _table(("function", "python", "returns"), rows)


def _topics(deployment: Deployment) -> Answer:
    rows = []
    for name in deployment.home.log.topics():
        topic = deployment.home.log.topic(name)
        number = sum(topic.end().values()) - sum(topic.start().values())
        rows.append((name, topic.partitions, topic.key or "", number))
    return _table(("topic", "partitions", "key", "records"), rows)


def describe(deployment: Deployment, statement: Describe) -> Answer:
    """Describe the columns of a source, table, view or system table."""
    name = statement.name
    entry = deployment.catalog.get(name)
    schema: Schema | pa.Schema | None = None
    if isinstance(entry, CreateSource):
        stream = Binder(Flow("trial"), deployment.catalog, sources.GENERATORS).named(name).stream
        schema = stream.schema
    elif isinstance(entry, CreateTable):
        schema = schema_of(deployment.catalog, entry)
    else:
        actual = next((t for t in deployment.home.store.tables() if t.lower() == name.lower()), None)
        if actual is not None:
            schema = rows_of(deployment.home, f"SELECT * FROM `{actual}` LIMIT 0").schema
        elif isinstance(entry, CreateView):
            schema = Binder(Flow("trial"), deployment.catalog, sources.GENERATORS).named(name).stream.schema
        elif deployment.home.log.exists(name):
            schema = deployment.home.log.topic(name).schema
    if schema is None:
        raise deployment.catalog.missing(name)
    key = {k.lower() for k in entry.key} if isinstance(entry, CreateSource | CreateTable) else set()
    time = entry.watermark[0].lower() if isinstance(entry, CreateSource) and entry.watermark else None
    required = {c.name for c in entry.columns if c.required} if isinstance(entry, CreateTable) else set()
    rows = []
    for column in schema:
        low = column.name.lower()
        possible = (("key", low in key), ("event time", low == time), ("not null", column.name in required))
        notes = [n for n, yes in possible if yes]
        kind = ddl_type(column.type) if column.type is not None else "known when it runs"
        rows.append((column.name, kind, ", ".join(notes)))
    return _table(("column", "type", "note"), rows)


def explain(deployment: Deployment, statement: Explain) -> Answer:
    """Explain the plan of a view (with ANALYZE also its metrics), or of a query that would be one."""
    if statement.query is not None:
        flow = Flow("query")
        binder = Binder(flow, deployment.catalog, sources.GENERATORS)
        binder.query(statement.piece.text, statement.query, statement.clauses).stream.view("query")
        return Answer(text=explaining.text(explaining.explain(plan(flow))))
    name = deployment.flow_of(statement.view)
    planned = deployment.planned(name)
    if planned is None:
        raise UnknownName(f"there is no view `{statement.view}` that works")
    root = explaining.explain(with_upstream(planned, statement.view), statement.view)
    text = explaining.text(root)
    if statement.analyze:
        text += "\n\n" + "\n".join(_going(deployment, planned, name, statement.view))
    return Answer(text=text)


def _going(deployment: Deployment, planned: Plan, flow: str, view: str) -> list[str]:
    """The metrics of a flow and of one view in it."""
    run = deployment.runs.get(flow)
    last = deployment.home.store.last(flow)
    lines = [f"flow {flow}: {_flow_state(deployment, flow)}, guarantee {planned.guarantee}"]
    if run is not None and run.reports:
        recent = list(run.reports)[-50:]
        span = max(1e-6, (recent[-1].now - recent[0].now) / 1e6 + recent[0].seconds)
        rows = sum(r.rows for r in recent)
        lines.append(f"  {rows / span:,.0f} rows/s over the last {len(recent)} epochs, "
                     f"{sum(r.seconds for r in recent) / len(recent) * 1000:,.0f} ms each")  # fmt: skip
        parts = mean_parts(r.parts for r in recent)
        lines.append("  by part, in ms: " + ", ".join(f"{part} {s * 1000:,.1f}" for part, s in parts.items()))
        lines += [f"  {text}" for text in _loads(planned, view, run.reports)]
    if last is not None:
        version = load_version(last.version, deployment.home.state.of(flow).runs)
        steps = [s for s in version.runs if view_of(s).lower() == view.lower()]
        lines.append(f"  epoch {last.number}; state of {view}: {sum(version.rows(s) for s in steps):,} rows, "
                     f"{sum(version.bytes(s) for s in steps):,} bytes")  # fmt: skip
        for row in deployment.home.view_rows():
            if row["view"].lower() == view.lower():
                lines.append(f"  watermark {row['watermark']}, {row['rows']:,} rows, {row['late']:,} late, "
                             f"{row['errors']:,} errors")  # fmt: skip
    return lines


def _loads(planned: Plan, view: str, reports: Sequence[EpochReport]) -> list[str]:
    """How evenly the rows of the operators of a view were spread over shards, in the last epoch that did."""
    recent = next((r for r in reversed(reports) if r.loads), None)
    lines = []
    for upstream in with_upstream(planned, view).views if recent is not None else ():
        load = recent.loads.get(upstream.name) if recent is not None else None
        if load is None or not load.rows:
            continue
        title = upstream.operator.name() or "rows"
        text = f"{title}: {load.rows:,} rows in {load.shards} shards, the fullest has {load.skew:.1f} x the mean"
        if load.key is not None:
            text += f"; hottest key {load.key or '(none)'} with {load.share:.0%}"
        lines.append(text)
    return lines


def _flow_state(deployment: Deployment, flow: str) -> str:
    note = deployment.definitions.flows.get(flow)
    return "paused" if note is not None and note.paused else deployment.home.flow_state(flow)


def _state(deployment: Deployment, name: str, flow: str = "") -> str:
    reason = deployment.broken.get(name.lower())
    if reason is not None:
        return f"broken: {reason.message}"
    return _flow_state(deployment, flow) if flow else "ready"


def _source_state(deployment: Deployment, entry: CreateSource) -> str:
    """The state of a source: broken, no longer read because its flow has failed, or ready."""
    for flow in deployment.flows():
        state = _flow_state(deployment, flow)
        if has_failed(state) and any(
            entry.name.lower() in deployment.catalog.sources_of(e) for e in deployment.members(flow)
        ):
            return f"not read by the flow {flow}: {state}"
    return _state(deployment, entry.name)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Answer:
    kinds = {"rows": pa.int64(), "epoch": pa.int64(), "late": pa.int64(), "errors": pa.int64(), "records": pa.int64(),
             "partitions": pa.int64(), "watermark": pa.timestamp("us", tz="UTC")}  # fmt: skip
    data = [pa.array([r[i] for r in rows], kinds.get(c, pa.string())) for i, c in enumerate(columns)]
    return Answer(result=Result(pa.table(data, names=list(columns))))
