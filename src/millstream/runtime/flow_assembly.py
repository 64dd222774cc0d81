"""Assembles the loop of a flow: its sources, its engine, its sinks and its state in the store, ready to run epochs from
where the flow stopped.
"""

from __future__ import annotations

import difflib
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from millstream import paths
from millstream.connect.port import SourcePort
from millstream.errors import DefinitionError, UnknownName
from millstream.model.origin import here
from millstream.plan.plan import Plan
from millstream.runtime.engine_port import PLACEMENTS, BuildEngine, EnginePort
from millstream.runtime.epoch.loop import FlowLoop
from millstream.runtime.epoch.outbox import Outbox
from millstream.runtime.epoch.progress import Progress
from millstream.runtime.epoch.records import RecordBook
from millstream.runtime.recovery import reconcile
from millstream.runtime.wiring import errors_of, sink_generations, sink_ports, source_port, view_specs
from millstream.state.flow_state import FlowState

if TYPE_CHECKING:
    from millstream.runtime.open_home import OpenHome


@dataclass(frozen=True)
class LoopOptions:
    """Options of the loop of a flow."""

    placement: str = "auto"
    shards: int | None = None
    """The number of shards of a spread epoch; None: as many tasks as the executors run at once."""
    retract: bool = False
    """Whether changes also carry the old rows."""
    failpoint: Callable[[str], None] = lambda _: None
    engine: BuildEngine | None = None
    """Builds an engine in place of the one from the home's factory."""

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            near = difflib.get_close_matches(self.placement, PLACEMENTS, 1)
            raise DefinitionError(
                f"there is no placement {self.placement!r}; there are {', '.join(PLACEMENTS)}",
                hint=f"did you mean {near[0]!r}?" if near else None,
                origin=here(),
            )
        if self.shards is not None and self.shards < 1:
            raise DefinitionError(f"a flow needs at least one shard, not {self.shards}", origin=here())


def assemble_loop(home: OpenHome, plan: Plan, options: LoopOptions) -> FlowLoop:
    """Assemble the loop of a planned flow. Raises when the flow does not match its state in the home; whatever was
    opened by then is closed.
    """
    with ExitStack() as opened:
        loop = _assemble(home, plan, options, opened)
        opened.pop_all()  # the loop closes them from now on
    return loop


def _assemble(home: OpenHome, plan: Plan, options: LoopOptions, opened: ExitStack) -> FlowLoop:
    """Open what the loop of a flow needs. `opened` closes it again."""
    root = paths.flow_folder(home.path, plan.flow)
    last = home.store.last(plan.flow)
    progress = Progress.from_json(last.progress) if last is not None else Progress()
    sources: dict[str, SourcePort] = {}
    for source in plan.sources:
        offsets = progress.offsets.get(source.name, {})
        sources[source.name] = source_port(root, plan.flow, source, offsets, home.log)
        opened.callback(sources[source.name].close)
    # In the background, once all sources are there: a process that has begun to start Spark ends only when it has.
    starting = home.engines.warm_up(plan) if options.engine is None else None
    state = home.state.of(plan.flow)
    reconcile.check(plan, home.store, RecordBook(root / "epochs"), state.runs, sources)
    reconcile.note_kinds(root, sources)
    home.sources[plan.flow] = sources
    progress.begin(plan, sources)
    tables = _table_files(home, plan)
    if starting is not None:
        starting.result()
    engine = _engine(home, plan, sources, state, tables, options)
    generations = sink_generations(engine.plan, home.store)
    home.store.prepare(plan.flow, view_specs(engine.plan), errors_of(engine.plan))
    sinks = sink_ports(engine.plan, home.log, generations, home.change_table, home.store, opened)
    token = home.store.take_lease(plan.flow, f"{socket.gethostname()}:{os.getpid()}")
    taps = home.engines.taps(plan, sources, root / "taps")
    for tap in taps:
        opened.callback(tap.close)
    return FlowLoop(
        engine,
        sources,
        home.store,
        root,
        home.clock,
        token,
        progress=progress,
        tables=home.tables,
        outbox=Outbox(engine.plan, sinks, root / "out", generations),
        taps=taps,
        failpoint=options.failpoint,
        check_owner=home.check_owner,
        pinned=partial(home.state.pinned, plan.flow),
    )


def _table_files(home: OpenHome, plan: Plan) -> dict[str, Path]:
    """The newest version of every stored table that a plan reads."""
    newest = home.tables.newest()
    for name in plan.tables:
        if name not in newest:
            raise UnknownName(
                f"there is no stored table `{name}` in this home",
                detail="there are: " + (", ".join(newest) or "none yet"),
                hint=f"store one first: home.put_table({name!r}, data)",
            )
    home.tables.check({name: newest[name] for name in plan.tables})
    return {name: home.tables.path(name, newest[name]) for name in plan.tables}


def _engine(
    home: OpenHome,
    plan: Plan,
    sources: Mapping[str, SourcePort],
    state: FlowState,
    tables: Mapping[str, Path],
    options: LoopOptions,
) -> EnginePort:
    if options.engine is not None:
        return options.engine(plan, sources, state)
    return home.engines.build(
        plan,
        sources,
        state,
        tables=tables,
        placement=options.placement,
        shards=options.shards,
        retract=options.retract,
    )
