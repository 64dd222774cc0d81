"""The deployment of the SQL definitions of a home: its catalog, the flows of its views, and the steps after a change.
`live/flows/choice.py` chooses the flow of a new view; `live/flows/plans.py` binds and plans it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from millstream.errors import (
    DefinitionError,
    DuplicateName,
    MillstreamError,
    StatementRefused,
    UnknownName,
)
from millstream.live import advice, cleanup, sources
from millstream.live.answer import Answer
from millstream.live.definitions import Definition, Definitions, FlowNote
from millstream.live.feed import ChangeFeed
from millstream.live.flows.choice import choose_flow
from millstream.live.flows.plans import BrokenDefinition, FlowPlans, check_alone
from millstream.model.connectors import check_name
from millstream.plan.plan import Plan
from millstream.runtime.flow_assembly import LoopOptions
from millstream.runtime.supervision.run import ENDED, Run
from millstream.sql.catalog import KIND_OF, Catalog
from millstream.sql.connectors import sink_of
from millstream.sql.parse import statement_parser
from millstream.sql.parse.queries import BUILT_IN
from millstream.sql.parse.script import split
from millstream.sql.parse.statement_values import (
    Create,
    CreateFunction,
    CreateSink,
    CreateSource,
    CreateTable,
    CreateView,
    Drop,
)
from millstream.sql.parse.text import Text

if TYPE_CHECKING:
    from millstream.live.session import Session
    from millstream.runtime.open_home import OpenHome


class Deployment:
    """The definitions of one home and their flows. One per home. Thread-safe."""

    def __init__(self, home: OpenHome, *, start: bool = True) -> None:
        self.home = home
        self.catalog = Catalog()
        self.definitions = Definitions.load(home.path, home.store.kept_catalog(), home.store.keep_catalog)
        self.broken: dict[str, MillstreamError] = {}
        """Definitions that no longer work, by name in lower case, and why."""
        self.runs: dict[str, Run] = {}
        self.feeds: dict[str, ChangeFeed] = {}
        self.closed = threading.Event()
        self.pending: set[str] = set()
        """Flows to restart with their current definitions: once for all statements of a text."""
        self.lock = threading.RLock()
        """Held while the definitions are changed, and until the following steps are done."""
        self._plans = FlowPlans(home.store.fingerprints)
        self._starts = start
        home.log.settle()
        self._load()
        cleanup.finish(self)
        for flow in self.flows():
            self.restart(flow)

    # ------------------------------------------------------------ definitions

    def _load(self) -> None:
        """Read the stored definitions, and bind and plan each flow; those that no longer work are recorded and left
        out.
        """
        for name, kept in self.definitions.entries.items():
            try:
                if kept.flow:
                    check_name(kept.flow, "flow")
                (piece,) = split(Text(kept.sql, f"definition of {name}"))
                entry = statement_parser.statement(piece, functions=self.catalog.functions, kept=True)
                assert isinstance(entry, Create)
                if isinstance(entry, CreateFunction):
                    self.catalog.functions[name] = sources.function(entry)
                self.catalog.add(entry, sources.parsed(kept.schema))
                if not kept.flow:
                    check_alone(self.catalog, entry)
            except MillstreamError as error:
                self.broken[name] = error
        for flow in self.flows():
            self._runnable(flow)
        self.broken = {n: self.broken[n] for n in self.definitions.entries if n in self.broken}

    def create(self, entry: Create, session: Session) -> Answer:
        """Add a new definition and deploy it."""
        with self.lock:
            kind, name = KIND_OF[type(entry)], entry.name.lower()
            if isinstance(entry, CreateFunction):
                if not session.administrator:
                    raise StatementRefused("only an administrator may register functions")
                if name in BUILT_IN:
                    raise DuplicateName(
                        f"`{entry.name}` is a built-in SQL function, and cannot be redefined",
                        hint="give the function another name",
                    )
            self.catalog.check_free(entry)
            there = self.catalog.get(entry.name)
            if there is not None:
                if entry.if_not_exists or (_same(there, entry) and name not in self.broken):
                    return Answer(message=f"the {kind} {entry.name} exists already", unchanged=True)
                self._check_replaceable(there, entry)
            elif isinstance(entry, CreateView | CreateTable | CreateSink):
                self._refuse_taken(entry)
            return Answer(message=self._add(entry, session))

    def _check_replaceable(self, there: Create, entry: Create) -> None:
        kind = KIND_OF[type(there)]
        if not entry.or_replace:
            raise DuplicateName(
                f"there is a {kind} `{there.name}` already", hint=f"CREATE OR REPLACE {kind.upper()} {there.name} ..."
            )
        self._refuse_dependents(there, "replaced")

    def _refuse_dependents(self, there: Create, what: str) -> None:
        dependents = self.catalog.dependents(there.name)
        if dependents:
            names = ", ".join(f"{KIND_OF[type(d)]} `{d.name}`" for d in dependents)
            raise DefinitionError(
                f"`{there.name}` cannot be {what}: {names} depend{'s' if len(dependents) == 1 else ''} on it",
                hint=f"DROP {KIND_OF[type(there)].upper()} {there.name} CASCADE drops them too",
            )

    def _refuse_taken(self, entry: Create) -> None:
        stored = {n.lower() for n in self.home.store.tables()}
        if entry.name.lower() in stored:
            raise DuplicateName(
                f"there is a view or table `{entry.name}` in this home that was not created by SQL",
                hint="give this one another name",
            )

    def _add(self, entry: Create, session: Session) -> str:
        """Add a definition, replacing an existing one. Everything that can be refused is refused before the commit.
        Until then nothing has changed, and the existing one keeps running.
        """
        cleanup.finish(self)
        name, kind = entry.name.lower(), KIND_OF[type(entry)]
        kept = Definition(entry.piece.sql, kind)
        catalog, definitions = self.catalog.copy(), self.definitions.copy()
        touched: set[str] = set()
        if name in definitions.entries:
            catalog.remove(name)
            touched = definitions.remove([name])
        if isinstance(entry, CreateFunction):
            catalog.functions[name] = sources.function(entry)
        schema = None
        if isinstance(entry, CreateSource):
            schema = sources.columns(self.home, entry, catalog)
            kept.schema = sources.ddl(schema) if schema is not None else ""
            if sources.lacks_topic(self.home, entry):
                definitions.pending.append((cleanup.MAKE_TOPIC, name))
        catalog.add(entry, schema)
        planned: Plan | None = None
        if isinstance(entry, CreateView) or (isinstance(entry, CreateSink) and entry.is_fed):
            planned = self._place(catalog, definitions, entry, session)
            kept.flow = planned.flow
        else:
            check_alone(catalog, entry)
            self._check_target(catalog, entry)
        if isinstance(entry, CreateTable):
            sources.check_table(catalog, entry)
            definitions.pending.append((cleanup.MAKE_TABLE, name))
        definitions.entries[name] = kept
        self.commit(catalog, definitions)
        self.broken.pop(name, None)
        self._settle(touched)
        if kept.flow:
            self.pending.add(kept.flow)
            session.begun.add(kept.flow)
        where = f" in the flow {kept.flow}" if kept.flow not in ("", entry.name) else ""
        return f"created the {kind} {entry.name}{where}{advice.notes(entry, planned)}"

    def _place(self, catalog: Catalog, definitions: Definitions, entry: Create, session: Session) -> Plan:
        """Choose the flow of a new view or sink, and bind and plan it there, next to the others. Records a new flow in
        the definitions.
        """
        while True:
            try:
                choice = choose_flow(self, catalog, definitions, entry, session.settings)
            except MillstreamError:
                check_alone(catalog, entry)  # errors in the definition itself come first
                self._check_target(catalog, entry)
                raise
            if choice.is_new:
                definitions.flows[choice.flow] = FlowNote(choice.start)
            members = self.members_of(catalog, definitions, choice.flow)
            start = self._start(definitions, choice.flow)
            planned = self._plans.add(choice.flow, start, catalog, members, entry)
            self._check_target(catalog, entry)
            if not choice.must_be_unread or self._stopped_unread(definitions, choice.flow):
                return planned

    def _check_target(self, catalog: Catalog, entry: Create) -> None:
        """Refuse a sink that cannot write to its target."""
        if isinstance(entry, CreateSink):
            sink_of(entry, catalog)
            sources.refuse_cycle(catalog, entry)

    def commit(self, catalog: Catalog, definitions: Definitions) -> None:
        """Commit a change of the definitions and apply it here: the commit point of a statement."""
        self.home.check_owner()
        definitions.save()
        self.catalog, self.definitions = catalog, definitions
        self._plans.keep(definitions.flows)
        self.broken = {n: e for n, e in self.broken.items() if n in definitions.entries}

    def _settle(self, touched: Iterable[str]) -> None:
        """Execute the steps after a commit. Flows that have lost a view restart without it at the end of the text."""
        for flow in touched:
            self.stop(flow)
        self.pending |= set(touched) & set(self.flows())
        cleanup.finish(self)

    # ------------------------------------------------------------ flows

    def flows(self) -> list[str]:
        """The flows that SQL has created."""
        return self.definitions.used_flows()

    def members(self, flow: str) -> list[Create]:
        """The working views and sinks of a flow."""
        return self.members_of(self.catalog, self.definitions, flow)

    def members_of(self, catalog: Catalog, definitions: Definitions, flow: str) -> list[Create]:
        """The working views and sinks of a flow, by a catalog and definitions that may not be committed yet."""
        names = [n for n, d in definitions.entries.items() if d.flow == flow and n not in self.broken]
        return [e for n in names if (e := catalog.get(n)) is not None]

    def flow_name(self, name: str) -> str:
        """The flow of a view or sink; empty when it has none, for example when it is being dropped."""
        kept = self.definitions.entries.get(name.lower())
        return kept.flow if kept is not None else ""

    def flow_of(self, name: str) -> str:
        """The flow of a view or sink, or the flow of this name."""
        kept = self.definitions.entries.get(name.lower())
        if kept is not None and kept.flow:
            return kept.flow
        if name in self.flows():
            return name
        raise self.catalog.missing(name, "view, sink or flow")

    def has_read(self, definitions: Definitions, flow: str) -> bool:
        """Whether a flow has read something that a view joining it now would miss."""
        return flow not in definitions.dropped and self.home.store.last(flow) is not None

    def _stopped_unread(self, definitions: Definitions, flow: str) -> bool:
        """Stop a flow that has read nothing, for a definition that joins it; False when it has read something by then,
        because its first epoch was running. It is restarted at the end of the text, whatever the outcome of the
        statement.
        """
        if flow in self.runs:
            self.pending.add(flow)
            self.stop(flow)
        return not self.has_read(definitions, flow)

    def _start(self, definitions: Definitions, flow: str) -> str:
        """Where a flow begins to read; empty for one that has begun."""
        note = definitions.flows.get(flow, FlowNote())
        return "" if self.has_read(definitions, flow) else note.start

    def planned(self, flow: str) -> Plan | None:
        """The plan of a flow with all its views; None when none of them works. Definitions that no longer work are
        recorded as broken, and left out.
        """
        while members := self.members(flow):
            try:
                return self._plans.of(flow, self._start(self.definitions, flow), self.catalog, members)
            except BrokenDefinition as broken:
                self.broken[broken.entry.name.lower()] = broken.error
        return None

    def _runnable(self, flow: str) -> Plan | None:
        """The plan of a flow; when the flow as a whole cannot be planned, all its views are recorded as broken."""
        try:
            return self.planned(flow)
        except MillstreamError as error:
            self.broken.update({e.name.lower(): error for e in self.members(flow)})
            return None

    def restart(self, flow: str) -> None:
        """Run a flow with its current definitions; it resumes where it stopped."""
        with self.lock:
            self.stop(flow)
            cleanup.finish(self)
            if not self._starts or self.definitions.flows.get(flow, FlowNote()).paused:
                return
            planned = self._runnable(flow)
            if planned is None:
                return
            feed = self.feeds.setdefault(flow, ChangeFeed())
            try:
                self.runs[flow] = self.home.start(
                    planned,
                    LoopOptions(retract=True),
                    on_output=lambda r: feed.take(r.number, dict(r.output.changes)),
                )
            except MillstreamError as error:  # affects only these views
                self.broken.update({e.name.lower(): error for e in self.members(flow)})

    def flush(self) -> None:
        """Start what was defined. Does not wait where there is nothing to do: another statement may hold the lock for a
        whole epoch, and queries must be answered in the meantime.
        """
        while self.pending:
            with self.lock:
                flow = min(self.pending, default=None)
                if flow is None:
                    return
                self.pending.discard(flow)
                try:
                    self.restart(flow)
                except BaseException:
                    self.pending.add(flow)
                    raise

    def runs_of(self, flows: Iterable[str]) -> list[Run]:
        """The runs of some flows, after the current statements, which may be starting them."""
        names = sorted(flows)
        if not names:
            return []
        with self.lock:
            return [r for f in names if (r := self.runs.get(f)) is not None]

    def stop(self, flow: str) -> None:
        """Stop a flow after its current epoch, however long that takes: the next steps
        may remove what the flow uses.
        """
        run = self.runs.get(flow)
        if run is not None:
            run.stop(timeout=None)
            del self.runs[flow]

    def broken_views_of(self, flow: str) -> str:
        """Which views of a flow do not work, and why; empty when all do."""
        mine = [n for n, d in self.definitions.entries.items() if d.flow == flow and n in self.broken]
        return "; ".join(f"the view `{n}` does not work: {self.broken[n].message}" for n in mine)

    def drop(self, statement: Drop) -> Answer:
        """DROP an object, and with CASCADE everything that depends on it."""
        with self.lock:
            kind, name = statement.kind.lower(), statement.name.lower()
            cleanup.finish(self)
            if kind == "topic":
                return cleanup.topic(self, statement)
            kept, entry = self.definitions.entries.get(name), self.catalog.get(name)
            spelled = entry.name if entry is not None else name
            if kept is None or kept.kind != kind:
                if statement.if_exists:
                    return Answer(message=f"there is no {kind} {statement.name}")
                if kept is not None:
                    raise UnknownName(
                        f"`{spelled}` is a {kept.kind}, not a {kind}",
                        hint=f"write {kept.kind.upper()} in place of {kind.upper()}",
                    )
                raise self.catalog.missing(statement.name, kind)
            dependents = self.catalog.dependents(name)
            if entry is not None and dependents and not statement.cascade:
                self._refuse_dependents(entry, "dropped")
            catalog, definitions = self.catalog.copy(), self.definitions.copy()
            dropped = [name, *(d.name.lower() for d in dependents)]
            for each in dropped:
                catalog.remove(each)
            touched = definitions.remove(dropped)
            if kind == "table":  # before the commit: a flow that is not of this catalog may read it
                self.home.check_unread(spelled, stopping=touched)
            self.commit(catalog, definitions)
            self._settle(touched)
            also = f", and {', '.join(d.name for d in dependents)}" if dependents else ""
            return Answer(message=f"dropped the {kind} {spelled}{also}")

    def attach(self, sink: CreateSink, query_text: str, session: Session) -> Answer:
        """INSERT INTO sink SELECT: the output of the query is written to the sink from now on."""
        if sink.is_fed:
            if sink.piece.sql.endswith(f" AS {query_text}"):
                return Answer(message=f"the sink {sink.name} already receives the result of this query", unchanged=True)
            raise DefinitionError(f"the sink `{sink.name}` already has a query", hint="create another sink")
        (piece,) = split(Text(f"{_head(sink)} AS {query_text}"))
        entry = statement_parser.statement(piece, functions=self.catalog.functions)
        assert isinstance(entry, CreateSink)
        with self.lock:
            self._add(entry, session)
        return Answer(message=f"the sink {sink.name} receives the result of the query from now on")

    def readers_of(self, names: Iterable[str]) -> list[Run]:
        """The runs of flows that read one of these sources or tables."""
        names_lower = {n.lower() for n in names}
        readers = []
        for flow, run in list(self.runs.items()):
            mine = self.members(flow)
            needed = {s for e in mine for s in (*self.catalog.sources_of(e), *self.catalog.tables_of(e))}
            if needed & names_lower and run.state not in ENDED:
                readers.append(run)
        return readers

    def close(self) -> None:
        """Stop everything."""
        self.closed.set()
        self._starts = False
        for feed in list(self.feeds.values()):
            feed.end()
        for run in list(self.runs.values()):
            run.stop()
        self.runs.clear()


def _head(sink: CreateSink) -> str:
    return sink.piece.sql.rstrip()


def _same(there: Create, entry: Create) -> bool:
    """Whether a definition has the same text as the existing one. INSERT INTO adds a query to the text of a sink."""
    if isinstance(there, CreateSink) and isinstance(entry, CreateSink) and there.query is not None and not entry.is_fed:
        return there.piece.sql.startswith(f"{_head(entry)} AS ")
    return there.piece.sql == entry.piece.sql
