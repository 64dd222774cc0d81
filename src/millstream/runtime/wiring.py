"""Opens what a planned flow reads from and writes to: a port for every source and every
sink, a table for every view.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from millstream.connect.port import Offsets, SinkPort, SourcePort
from millstream.connect.registry import (
    ConnectorEntry,
    SinkContext,
    SourceContext,
    add,
    entry_of,
    open_sink,
    open_source,
)
from millstream.engine.driver.row_errors import quarantines
from millstream.log.log import Log
from millstream.model import connector_declarations
from millstream.model.connectors import TableTarget
from millstream.plan.plan import Plan, PlannedSource, PlannedView
from millstream.runtime.epoch.table_sink import ChangesTable, KeepsTables, TableAccess, TableSink
from millstream.state.durable import write_durably
from millstream.store.port import EpochStore, ViewSpec


def source_port(
    root: Path, flow: str, source: PlannedSource, at: Offsets, log: Log, *, holds: bool = True
) -> SourcePort:
    """Open the source of a flow whose files are under `root`, and which has read it up to `at`."""
    return open_source(SourceContext(source.connector, source.schema, flow, source.name, root, at, log, holds))


def sink_generations(plan: Plan, store: EpochStore) -> dict[str, int]:
    """Return the generation of every sink of a plan, by the name of the view. A sink that is new to its flow begins
    with a generation above that of every file of its name in its directory, so that it never overwrites the files of
    another sink: of one that was dropped, or of another home.
    """
    known = store.members(plan.flow)
    for view in plan.views:
        newest = None if view.sink is None else entry_of(view.sink.system).generation
        if view.sink is not None and newest is not None and view.name not in known:
            there = newest(view.sink, view.name)
            if there is not None and there >= store.generation(plan.flow, view.name):
                store.raise_generation(plan.flow, view.name, there + 1)
    return {v.name: store.generation(plan.flow, v.name) for v in plan.views if v.sink is not None}


def sink_ports(
    plan: Plan,
    log: Log,
    generations: Mapping[str, int],
    change: ChangesTable,
    store: KeepsTables,
    opened: ExitStack,
) -> dict[str, SinkPort]:
    """Open the sinks of a bound plan, by the name of the view; missing topics are created. `opened` closes them."""
    topics = frozenset(t for s in plan.sources if (t := s.connector.topic_of_its_own) is not None)
    ports: dict[str, SinkPort] = {}
    for view in plan.views:
        if view.sink is not None:
            context = SinkContext(
                view.sink,
                plan.flow,
                view.name,
                generations[view.name],
                view.kind_column,
                view.sink_schema,
                log,
                write_durably,
                TableAccess(change, store),
                topics,
            )
            ports[view.name] = open_sink(context)
            opened.callback(ports[view.name].close)
            ports[view.name].open(view.sink_schema, view.identity)
    return ports


def _open_table(context: SinkContext) -> TableSink:
    assert isinstance(context.sink, TableTarget)
    return TableSink(context.name, context.sink, context.kind_column, context.tables, context.writer)


add(ConnectorEntry(connector_declarations.TABLE, sink=_open_table))


def view_specs(plan: Plan) -> list[ViewSpec]:
    """Describe the views of a bound plan to the store."""
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
    """The sources and views whose rows may be quarantined as errors."""
    return [*(s.name for s in plan.sources), *quarantines(plan)]


def _may_come_late(plan: Plan, view: PlannedView) -> bool:
    """Whether rows may be late for an operator that passes them on to a view."""
    operator = view.operator
    if operator.reads_scans:
        return operator.takes_late_rows
    before = [plan.view(name) for name in operator.inputs]
    return any(_may_come_late(plan, v) or v.operator.has_windows for v in before)
