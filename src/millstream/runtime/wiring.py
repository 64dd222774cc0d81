"""What a planned flow reads from and writes to, made ready: a port for every source and every sink, a table for every
view.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from millstream.connect.files import FileSource
from millstream.connect.generator import GeneratorSource
from millstream.connect.log import LogSource
from millstream.connect.memory import MemorySource
from millstream.connect.port import Offsets, SourcePort
from millstream.connect.sinks import ConsoleSink, FilesSink, SinkPort, TopicSink, newest_generation
from millstream.engine.driver.row_errors import quarantines
from millstream.errors import DefinitionError, IncompatibleChange
from millstream.log.log import Log
from millstream.log.topic import Topic
from millstream.model.connectors import Files, Generator, LogTopic, Memory, SparkStream, TableTarget
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.stages import Plan, SourceStage, ViewStage
from millstream.runtime.epoch.table_sink import ChangesTables, TableSink
from millstream.state.run import write_durably
from millstream.store.port import ViewSpec


def source_port(root: Path, flow: str, source: SourceStage, at: Offsets, log: Log) -> SourcePort:
    """The source of a flow whose files are under `root`, and which has read it up to `at`."""
    connector = source.connector
    if isinstance(connector, Files):
        return FileSource(connector, source.schema, root / "sources" / f"{source.name}.jsonl")
    if isinstance(connector, Generator):
        return GeneratorSource(connector, at.get(0, 0))
    if isinstance(connector, Memory):
        return MemorySource(connector, source.schema)
    name = topic_name(flow, source)
    assert name is not None
    if isinstance(connector, SparkStream) and not log.exists(name):
        log.create(name, source.schema.to_arrow())
    how = connector if isinstance(connector, LogTopic) else LogTopic(name)
    return LogSource(log.topic(name), how, source.schema, f"{flow}.{source.name}", at)


def topic_name(flow: str, source: SourceStage) -> str | None:
    """The topic that a source is read from: its own, or the one that a tap lands its records in; None for others."""
    connector = source.connector
    if isinstance(connector, SparkStream):
        return connector.topic or _landing(flow, source.name)
    return connector.topic if isinstance(connector, LogTopic) else None


class _Generations(Protocol):
    """What is asked of the store."""

    def members(self, flow: str) -> set[str]: ...
    def generation(self, flow: str, sink: str = "") -> int: ...
    def raise_generation(self, flow: str, sink: str, least: int) -> None: ...


def sink_generations(plan: Plan, store: _Generations) -> dict[str, int]:
    """The generation of every sink of a plan, by the name of the view. A sink that its flow did not have before begins
    with one above that of every file of its name in its folder, so that it never writes over the files of another:
    of a sink that was dropped, or of another home.
    """
    known = store.members(plan.flow)
    for view in plan.views:
        if isinstance(view.sink, Files) and view.name not in known:
            there = newest_generation(Path(view.sink.path).absolute(), view.name)
            if there is not None and there >= store.generation(plan.flow, view.name):
                store.raise_generation(plan.flow, view.name, there + 1)
    return {v.name: store.generation(plan.flow, v.name) for v in plan.views if v.sink is not None}


def sink_ports(plan: Plan, log: Log, generations: Mapping[str, int], change: ChangesTables) -> dict[str, SinkPort]:
    """The sinks of a bound plan, by the name of the view; topics are made where they are missing."""
    ports: dict[str, SinkPort] = {}
    for view in plan.views:
        if isinstance(view.sink, LogTopic):
            ports[view.name] = TopicSink(_sink_topic(plan, view, view.sink.topic, log))
        elif isinstance(view.sink, Files):
            folder = Path(view.sink.path).absolute()
            ports[view.name] = FilesSink(folder, view.sink.format, view.name, generations[view.name], write_durably)
        elif isinstance(view.sink, TableTarget):
            ports[view.name] = TableSink(view.name, view.sink, view.kind_column, change)
        elif view.sink is not None:
            ports[view.name] = ConsoleSink(view.name, view.kind_column)
    return ports


def _sink_topic(plan: Plan, view: ViewStage, name: str, log: Log) -> Topic:
    schema = view.sink_schema
    if any(isinstance(s.connector, LogTopic) and s.connector.topic == name for s in plan.sources):
        raise IncompatibleChange(
            f"`{view.name}` writes to the topic `{name}`, which the flow `{plan.flow}` itself reads",
            detail="it would read its own answers for ever",
            hint="write to another topic, or read it in another flow",
        )
    topic = log.topic(name) if log.exists(name) else log.create(name, schema)
    if topic.schema.names != schema.names or topic.schema.types != schema.types:
        raise IncompatibleChange(
            f"`{view.name}` does not fit the topic `{name}`",
            detail=f"it writes ({_columns(schema)}), the topic holds ({_columns(topic.schema)})",
            hint="write to another topic",
        )
    return topic


def _landing(flow: str, source: str) -> str:
    """The topic of a Spark stream that names none. One that is cut short could be that of another source."""
    name = f"{flow}_{source}"
    if len(name) > 63:
        raise DefinitionError(
            f"the topic of the source `{source}` would be called {name}, which is too long",
            hint=f"name it: ms.spark_stream(..., topic={name[:63]!r})",
        )
    return name


def view_specs(plan: Plan) -> list[ViewSpec]:
    """What the store must know of the views of a bound plan."""
    return [
        ViewSpec(
            v.name,
            v.schema,
            v.columns,
            v.identity,
            v.retention,
            v.time_column,
            v.fingerprint,
            v.panes,
            v.panes_kept,
            _may_come_late(plan, v),
            v.kept,
        )
        for v in plan.views
        if not v.inner
    ]


def errors_of(plan: Plan) -> list[str]:
    """The sources and views of which rows may be set apart as errors."""
    return [*(s.name for s in plan.sources), *quarantines(plan)]


def _may_come_late(plan: Plan, view: ViewStage) -> bool:
    """Whether rows may come too late for an operator that hands them on to a view."""
    operator = view.operator
    if operator.reads_scans:
        return operator.takes_late_rows
    before = [plan.view(name) for name in operator.inputs]
    return any(_may_come_late(plan, v) or _has_windows(v) for v in before)


def _has_windows(view: ViewStage) -> bool:
    return isinstance(view.operator, Aggregation) and not view.operator.window.is_global


def _columns(schema: object) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)  # type: ignore[attr-defined]
