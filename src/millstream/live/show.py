"""SHOW, DESCRIBE, EXPLAIN and SET, as tables and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import UnknownName
from millstream.live import sources
from millstream.live.answer import Answer
from millstream.model.flow import Flow
from millstream.model.types.schema import Schema, ddl_type
from millstream.plan.explain import plan_tree as explaining
from millstream.plan.planner import plan
from millstream.plan.stages import Plan, view_of
from millstream.result import Result
from millstream.runtime.inspect.status import WARN, has_failed
from millstream.sql.bind.binder import Binder
from millstream.sql.catalog import schema_of
from millstream.sql.connectors import topic_name
from millstream.sql.parse.statements import (
    CreateFunction,
    CreateSink,
    CreateSource,
    CreateTable,
    CreateView,
    Describe,
    Explain,
    Place,
    Show,
)
from millstream.state.version import Version

if TYPE_CHECKING:
    from millstream.live.deployment import Live


def show(live: Live, statement: Show) -> Answer:
    """All things of a kind."""
    return {
        "SOURCES": _sources,
        "VIEWS": _views,
        "SINKS": _sinks,
        "FLOWS": _flows,
        "TABLES": _tables,
        "FUNCTIONS": _functions,
        "TOPICS": _topics,
    }[statement.kind](live)


def settings(given: Mapping[str, Any], known: Mapping[str, tuple[Any, str]]) -> Answer:
    """Options of a session."""
    return _table(("option", "value", "meaning"), [(n, str(v), known[n][1]) for n, v in given.items()])


def _sources(live: Live) -> Answer:
    rows = []
    for entry in live.catalog.of(CreateSource):
        time = f"{entry.watermark[0]}, lateness {entry.watermark[1]}" if entry.watermark else "when it is read"
        read = [e.name for e in live.catalog.dependents(entry.name)]
        rows.append((entry.name, _said(entry.place, entry.name), time, ", ".join(read), _source_state(live, entry)))
    return _table(("source", "reads", "event_time", "read_by", "state"), rows)


def _views(live: Live) -> Answer:
    there = {v["view"]: v for v in live.home.views()}
    rows = []
    for entry in live.catalog.of(CreateView):
        known = there.pop(entry.name, {})
        flow = live.flow_name(entry.name)
        rows.append((entry.name, flow, known.get("rows"), known.get("epoch"), known.get("watermark"),
                     known.get("late", 0), _state(live, entry.name, flow)))  # fmt: skip
    for name, known in there.items():
        state = live.home.flow_state(known["flow"])
        rows.append((name, known["flow"], known["rows"], known["epoch"], known["watermark"], known["late"], state))
    for name in list(live.broken):
        kept = live.definitions.entries.get(name)
        if kept is not None and live.catalog.get(name) is None and kept.kind == "view":
            rows.append((name, kept.flow, None, None, None, 0, _state(live, name)))
    return _table(("view", "flow", "rows", "epoch", "watermark", "late", "state"), rows)


def _sinks(live: Live) -> Answer:
    rows = []
    for entry in live.catalog.of(CreateSink):
        flow = live.flow_name(entry.name)
        what = entry.view or ("a query" if entry.query is not None else "nothing yet")
        rows.append((entry.name, what, _said(entry.place, entry.name), flow, _state(live, entry.name, flow)))
    return _table(("sink", "from", "writes", "flow", "state"), rows)


def _flows(live: Live) -> Answer:
    known = {f["flow"]: f for f in live.home.flows()}
    rows = []
    for name in dict.fromkeys([*live.flows(), *known]):
        told = known.get(name, {})
        members = [e.name for e in live.members(name)] or [v["view"] for v in live.home.views() if v["flow"] == name]
        rows.append((name, _flow_state(live, name), ", ".join(members), told.get("epoch", 0), told.get("rows", 0),
                     told.get("errors", 0), told.get("watermark")))  # fmt: skip
    return _table(("flow", "state", "views", "epoch", "rows", "errors", "watermark"), rows)


def _tables(live: Live) -> Answer:
    rows = []
    for entry in live.catalog.of(CreateTable):
        found = live.home.query(f"SELECT count(*) AS n FROM `{entry.name}`").to_dicts()[0]["n"]
        read = [e.name for e in live.catalog.dependents(entry.name)]
        rows.append((entry.name, ", ".join(entry.key), found, ", ".join(read)))
    return _table(("table", "key", "rows", "read_by"), rows)


def _functions(live: Live) -> Answer:
    rows = [(e.name, e.target, e.returns) for e in live.catalog.of(CreateFunction)]
    return _table(("function", "python", "returns"), rows)


def _topics(live: Live) -> Answer:
    rows = []
    for name in live.home.topics():
        topic = live.home.log.topic(name)
        number = sum(topic.end().values()) - sum(topic.start().values())
        rows.append((name, topic.partitions, topic.key or "", number))
    return _table(("topic", "partitions", "key", "records"), rows)


def describe(live: Live, statement: Describe) -> Answer:
    """The columns of a source, table, view or system table."""
    name = statement.name
    entry = live.catalog.get(name)
    schema: Schema | pa.Schema | None = None
    if isinstance(entry, CreateSource):
        stream = Binder(Flow("trial"), live.catalog, sources.GENERATORS).named(name).stream
        schema = stream.schema
    elif isinstance(entry, CreateTable):
        schema = schema_of(live.catalog, entry)
    else:
        actual = next((t for t in live.home.store.tables() if t.lower() == name.lower()), None)
        if actual is not None:
            schema = live.home.query(f"SELECT * FROM `{actual}` LIMIT 0", failed_views=WARN).to_arrow().schema
        elif isinstance(entry, CreateView):
            schema = Binder(Flow("trial"), live.catalog, sources.GENERATORS).named(name).stream.schema
        elif live.home.log.exists(name):
            schema = live.home.log.topic(name).schema
    if schema is None:
        raise live.catalog.missing(name)
    key = {k.lower() for k in entry.key} if isinstance(entry, CreateSource | CreateTable) else set()
    time = entry.watermark[0].lower() if isinstance(entry, CreateSource) and entry.watermark else None
    required = {c.name for c in entry.columns if c.required} if isinstance(entry, CreateTable) else set()
    rows = []
    for column in schema:
        low = column.name.lower()
        said = (("key", low in key), ("event time", low == time), ("not null", column.name in required))
        notes = [n for n, yes in said if yes]
        kind = ddl_type(column.type) if column.type is not None else "known when it runs"
        rows.append((column.name, kind, ", ".join(notes)))
    return _table(("column", "type", "note"), rows)


def explain(live: Live, statement: Explain) -> Answer:
    """The plan of a view (with ANALYZE, and how it goes), or of a query that would be one."""
    if statement.query is not None:
        flow = Flow("query")
        binder = Binder(flow, live.catalog, sources.GENERATORS)
        binder.query(statement.piece.text, statement.query, statement.clauses).stream.view("query")
        return Answer(text=explaining.text(explaining.explain(plan(flow))))
    name = live.flow_of(statement.view)
    planned = live.planned(name)
    if planned is None:
        raise UnknownName(f"there is no view `{statement.view}` that works")
    root = explaining.explain(_only(planned, statement.view))
    text = explaining.text(root)
    if statement.analyze:
        text += "\n\n" + "\n".join(_going(live, planned, name, statement.view))
    return Answer(text=text)


def _only(planned: Plan, view: str) -> Plan:
    """A plan as far as one view is concerned."""
    kept = tuple(v for v in planned.views if view_of(v.name).lower() == view.lower())
    if not kept:
        return planned
    used = {s for v in kept for s in v.stage.sources}
    return replace(
        planned,
        views=kept,
        sources=tuple(s for s in planned.sources if s.name in used),
        scans=tuple(s for s in planned.scans if s.source in used),
    )


def _going(live: Live, planned: Plan, flow: str, view: str) -> list[str]:
    """Live figures of a flow and of one view in it."""
    run = live.runs.get(flow)
    last = live.home.store.last(flow)
    lines = [f"flow {flow}: {_flow_state(live, flow)}, guarantee {planned.guarantee}"]
    if run is not None and run.reports:
        recent = list(run.reports)[-50:]
        span = max(1e-6, (recent[-1].now - recent[0].now) / 1e6 + recent[0].seconds)
        rows = sum(r.rows for r in recent)
        lines.append(f"  {rows / span:,.0f} rows/s over the last {len(recent)} epochs, "
                     f"{sum(r.seconds for r in recent) / len(recent) * 1000:,.0f} ms each")  # fmt: skip
    if last is not None:
        version = Version.from_json(last.version)
        steps = [s for s in version.runs if view_of(s).lower() == view.lower()]
        lines.append(f"  epoch {last.number}; state of {view}: {sum(version.rows(s) for s in steps):,} rows, "
                     f"{sum(version.bytes(s) for s in steps):,} bytes")  # fmt: skip
        for row in live.home.views():
            if row["view"].lower() == view.lower():
                lines.append(f"  watermark {row['watermark']}, {row['rows']:,} rows, {row['late']:,} late, "
                             f"{row['errors']:,} errors")  # fmt: skip
    return lines


def _flow_state(live: Live, flow: str) -> str:
    note = live.definitions.flows.get(flow)
    return "paused" if note is not None and note.paused else live.home.flow_state(flow)


def _state(live: Live, name: str, flow: str = "") -> str:
    reason = live.broken.get(name.lower())
    if reason is not None:
        return f"broken: {reason.message}"
    return _flow_state(live, flow) if flow else "ready"


def _source_state(live: Live, entry: CreateSource) -> str:
    """Of a source: broken, or not read any more by a flow that has failed, or ready."""
    for flow in live.flows():
        state = _flow_state(live, flow)
        if has_failed(state) and any(entry.name.lower() in live.catalog.sources_of(e) for e in live.members(flow)):
            return f"not read by the flow {flow}: {state}"
    return _state(live, entry.name)


def _said(place: Place, name: str) -> str:
    if place.kind == "LOG":
        return f"the topic {topic_name(place, name)}"
    if place.kind == "TABLE":
        return f"the table {place.arguments[0]}"
    first = str(place.arguments[0]) if place.arguments else ""
    return {"FILES": f"files in {first}", "GENERATOR": f"the generator {first}"}.get(place.kind, place.kind.lower())


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Answer:
    kinds = {"rows": pa.int64(), "epoch": pa.int64(), "late": pa.int64(), "errors": pa.int64(), "records": pa.int64(),
             "partitions": pa.int64(), "watermark": pa.timestamp("us", tz="UTC")}  # fmt: skip
    data = [pa.array([r[i] for r in rows], kinds.get(c, pa.string())) for i, c in enumerate(columns)]
    return Answer(result=Result(pa.table(data, names=list(columns))))
