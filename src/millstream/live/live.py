"""What SQL has defined in a home, alive: its catalog, the flows that its views run in, and what follows a change.

A view belongs to a flow. Views that are made before their flow has read anything share it, and with it one pass over
their sources. One that is made later, and is to see the history, gets a flow of its own, which begins where it says and
catches up while the others keep running; with ``start = 'now'`` it joins the running flow at the next epoch instead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from millstream.errors import DefinitionError, DuplicateName, MillstreamError, StatementRefused, UnknownName
from millstream.live import removal, sources
from millstream.live.answer import Answer
from millstream.live.definitions import Definition, Definitions, FlowNote
from millstream.live.feed import Feed
from millstream.model.flow import Flow
from millstream.plan.explain import explain
from millstream.plan.node import growing
from millstream.plan.planner import plan
from millstream.plan.stages import Plan, view_of
from millstream.runtime.run import ENDED, Run
from millstream.sql import grammar
from millstream.sql.bind import Binder
from millstream.sql.catalog import KIND_OF, Catalog
from millstream.sql.places import NOW
from millstream.sql.statements import (
    Create,
    CreateFunction,
    CreateSink,
    CreateSource,
    CreateTable,
    CreateView,
    Drop,
    Pause,
)
from millstream.sql.text import Text, pieces

if TYPE_CHECKING:
    from millstream.home import Home
    from millstream.live.session import Session

BOUND_JOIN = "a comparison of event times in ON bounds it, or WITH (state_ttl = '1 day')"
BOUND = "a window in GROUP BY bounds it, e.g. TUMBLE(ts, INTERVAL '1' HOUR)"


class Live:
    """The definitions of one home and their flows. One for each home; its methods may be called from any thread."""

    def __init__(self, home: Home, *, start: bool = True) -> None:
        self.home = home
        self.catalog = Catalog()
        self.definitions = Definitions.load(home.path)
        self.broken: dict[str, MillstreamError] = {}
        """Definitions that no longer work, by name in lower case, and why."""
        self.runs: dict[str, Run] = {}
        self.feeds: dict[str, Feed] = {}
        self.closed = threading.Event()
        self.pending: set[str] = set()
        """Flows that are to be run as their definitions say now: once for all statements of a text."""
        self._lock = threading.RLock()
        self._starts = start
        self._load()
        removal.finish(self)
        for flow in self.flows():
            self.restart(flow)

    # ------------------------------------------------------------ definitions

    def _load(self) -> None:
        """Take the kept definitions in; what no longer works is noted and left out."""
        for name, kept in self.definitions.entries.items():
            try:
                (piece,) = pieces(Text(kept.sql, f"definition of {name}"))
                entry = grammar.statement(piece, functions=self.catalog.functions)
                assert isinstance(entry, Create)
                if isinstance(entry, CreateFunction):
                    self.catalog.functions[name] = sources.function(entry)
                self.catalog.add(entry, sources.parsed(kept.schema))
                self._try(self.catalog, entry)
            except MillstreamError as error:
                self.broken[name] = error

    def create(self, entry: Create, session: Session) -> Answer:
        """Take a new definition in, and set it to work."""
        with self._lock:
            kind, name = KIND_OF[type(entry)], entry.name.lower()
            if isinstance(entry, CreateFunction) and not session.administrator:
                raise StatementRefused("only an administrator may register functions")
            self.catalog.check_free(entry)
            there = self.catalog.get(entry.name)
            if there is not None:
                if entry.if_not_exists or (there.piece.sql == entry.piece.sql and name not in self.broken):
                    return Answer(said=f"the {kind} {entry.name} is there already", unchanged=True)
                self._check_replaceable(there, entry)
            elif isinstance(entry, CreateView | CreateTable):
                self._refuse_taken(entry)
            return Answer(said=self._add(entry, session, there))

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
            said = ", ".join(f"{KIND_OF[type(d)]} `{d.name}`" for d in dependents)
            raise DefinitionError(
                f"`{there.name}` cannot be {what}: {said} depend{'s' if len(dependents) == 1 else ''} on it",
                hint=f"DROP {KIND_OF[type(there)].upper()} {there.name} CASCADE drops them too",
            )

    def _refuse_taken(self, entry: Create) -> None:
        taken = {n.lower() for n in self.home.store.tables()}
        if entry.name.lower() in taken:
            raise DuplicateName(
                f"there is a view or table `{entry.name}` in this home that was not made by SQL",
                hint="give this one another name",
            )

    def _add(self, entry: Create, session: Session, there: Create | None = None) -> str:
        """Take a definition in, in the place of one that is there; that one stays unless the new one works."""
        name, kind = entry.name.lower(), KIND_OF[type(entry)]
        kept = Definition(entry.piece.sql, kind)
        said = f"created the {kind} {entry.name}"
        trial = self.catalog.copy()
        if isinstance(entry, CreateFunction):
            trial.functions[name] = sources.function(entry)
        schema = None
        if isinstance(entry, CreateSource):
            schema = sources.prepare(self.home, entry, trial)
            kept.schema = sources.ddl(schema) if schema is not None else ""
        trial.add(entry, schema)
        tried = self._try(trial, entry)
        if there is not None:
            removal.forget(self, [there])
        if isinstance(entry, CreateTable):
            sources.make_table(self.home, trial, entry)
        flow = ""
        if tried is not None:
            flow = self._choose(trial, entry, session)
            kept.flow = flow
            said += f" in the flow {flow}" if flow != entry.name else ""
        self.catalog = trial
        self.broken.pop(name, None)
        self.definitions.entries[name] = kept
        self.definitions.save()
        if flow:
            self.pending.add(flow)
            session.begun.add(flow)
        return said + _advice(tried)

    def _try(self, catalog: Catalog, entry: Create) -> Plan | None:
        """Refuse a definition that does not work; the plan of one that has one."""
        flow = Flow("trial")
        bound = Binder(flow, catalog, sources.GENERATORS).definition(entry)
        return None if bound is None else plan(flow)

    # ------------------------------------------------------------ flows

    def flows(self) -> list[str]:
        """The flows that SQL has made."""
        return list(dict.fromkeys(d.flow for d in self.definitions.entries.values() if d.flow))

    def members(self, flow: str) -> list[Create]:
        """The views and sinks of a flow that work."""
        names = [n for n, d in self.definitions.entries.items() if d.flow == flow and n not in self.broken]
        return [e for n in names if (e := self.catalog.get(n)) is not None]

    def flow_of(self, name: str) -> str:
        """The flow of a view or sink, or the flow of this name."""
        found = self.definitions.entries.get(name.lower())
        if found is not None and found.flow:
            return found.flow
        if name in self.flows():
            return name
        raise self.catalog.missing(name, "view, sink or flow")

    def _choose(self, catalog: Catalog, entry: Create, session: Session) -> str:
        """The flow that a new view or sink is to run in, noted in the definitions."""
        options = entry.options if isinstance(entry, CreateView) else {}
        asked = str(options.get("flow") or session.settings["flow"] or "")
        start = str(options.get("start") or session.settings["start"] or "")
        mine = catalog.sources_of(entry)
        if not mine and not catalog.needs(entry):
            raise DefinitionError(f"`{entry.name}` reads no source")
        if isinstance(entry, CreateSink) and entry.view:
            wanted = self.definitions.entries[entry.view.lower()].flow
            if not self._has_read(wanted):
                return wanted
        for flow in [asked] if asked else self.flows():
            note = self.definitions.flows.get(flow)
            if note is None:
                continue
            theirs = {s for e in self.members(flow) for s in catalog.sources_of(e)}
            fits = not self._has_read(flow) and note.start == start
            if (start == NOW and theirs >= mine) or (fits and (theirs & mine or asked)):
                if not self._knows(flow, entry.name):
                    return flow
        if asked and asked in self.definitions.flows:
            raise DefinitionError(
                f"the flow `{asked}` has begun: a view that joins it sees what comes from now on only",
                hint=f"WITH (flow = '{asked}', start = 'now'), or leave the flow out and it gets one of its own",
            )
        fresh = asked or ("_".join(sorted(mine)) if mine and not self._fellows(mine) else entry.name)
        flow = self._unused(fresh[:55])
        self.definitions.flows[flow] = FlowNote(start)
        return flow

    def _fellows(self, mine: set[str]) -> bool:
        return any(mine & self.catalog.sources_of(e) for f in self.flows() for e in self.members(f))

    def _has_read(self, flow: str) -> bool:
        return self.home.store.last(flow) is not None

    def _knows(self, flow: str, view: str) -> bool:
        """Whether state of an earlier view of this name may still be in a flow."""
        last = self.home.store.last(flow)
        return last is not None and any(view_of(step) == view for step in last.version)

    def _unused(self, name: str) -> str:
        taken = {*self.home.store.flows(), *self.definitions.flows, *self.definitions.dropped, "checkpoint"}
        taken |= {f.name for f in (self.home.path / "flows").glob("*")}
        return next(n for n in (name, *(f"{name}_{i}" for i in range(2, 100_000))) if n not in taken)

    def bound(self, flow: str) -> Flow | None:
        """The flow of this name with all of its views; None when it has none that works. What no longer works is noted
        as broken, and left out.
        """
        note = self.definitions.flows.get(flow, FlowNote())
        while members := self.members(flow):
            made = Flow(flow)
            binder = Binder(made, self.catalog, sources.GENERATORS, start="" if self._has_read(flow) else note.start)
            for entry in members:
                try:
                    binder.definition(entry)
                except MillstreamError as error:
                    self.broken[entry.name.lower()] = error
                    break
            else:
                return made
        return None

    def planned(self, flow: str) -> Plan | None:
        """The plan of a flow."""
        made = self.bound(flow)
        return None if made is None else plan(made)

    def restart(self, flow: str) -> None:
        """Run a flow as its definitions say now; it goes on where it was."""
        with self._lock:
            self.stop(flow)
            note = self.definitions.flows.get(flow, FlowNote())
            made = self.bound(flow)
            if made is None or note.paused or not self._starts:
                return
            feed = self.feeds.setdefault(flow, Feed())
            self.runs[flow] = self.home.start(
                made, retract=True, on_output=lambda r: feed.take(r.number, dict(r.output.changes))
            )

    def flush(self) -> None:
        """Set to work what was defined."""
        with self._lock:
            while self.pending:
                self.restart(self.pending.pop())

    def stop(self, flow: str) -> None:
        """Let a flow rest."""
        run = self.runs.pop(flow, None)
        if run is not None:
            run.stop()

    def pause(self, statement: Pause) -> Answer:
        """PAUSE and RESUME."""
        with self._lock:
            flow = self.flow_of(statement.name)
            self.definitions.flows.setdefault(flow, FlowNote()).paused = not statement.resume
            self.definitions.save()
            if statement.resume:
                run = self.runs.get(flow)
                if run is None or run.state in ENDED:
                    self.restart(flow)
                return Answer(said=f"the flow {flow} goes on")
            self.stop(flow)
            return Answer(said=f"the flow {flow} rests; RESUME {flow} lets it go on where it was")

    def drop(self, statement: Drop) -> Answer:
        """DROP something, and with CASCADE what depends on it."""
        with self._lock:
            kind = statement.kind.lower()
            if kind == "topic":
                return removal.topic(self, statement)
            entry = self.catalog.get(statement.name) or self._broken_entry(statement.name)
            if entry is None or KIND_OF[type(entry)] != kind:
                if statement.if_exists:
                    return Answer(said=f"there is no {kind} {statement.name}")
                if entry is not None:
                    raise UnknownName(f"`{entry.name}` is a {KIND_OF[type(entry)]}, not a {kind}")
                raise self.catalog.missing(statement.name, kind)
            dependents = self.catalog.dependents(entry.name)
            if dependents and not statement.cascade:
                self._refuse_dependents(entry, "dropped")
            removal.forget(self, [entry, *dependents])
            also = f", and {', '.join(d.name for d in dependents)}" if dependents else ""
            return Answer(said=f"dropped the {kind} {entry.name}{also}")

    def _broken_entry(self, name: str) -> Create | None:
        kept = self.definitions.entries.get(name.lower())
        if kept is None:
            return None
        (piece,) = pieces(Text(kept.sql))
        entry = grammar.statement(piece, functions=grammar.ANY)
        return entry if isinstance(entry, Create) else None

    def attach(self, sink: CreateSink, query_text: str, session: Session) -> Answer:
        """INSERT INTO sink SELECT: what the query gives is written to the sink from now on."""
        head = sink.piece.sql.rstrip()
        (piece,) = pieces(Text(f"{head} AS {query_text}"))
        entry = grammar.statement(piece, functions=self.catalog.functions)
        assert isinstance(entry, CreateSink)
        with self._lock:
            self._add(entry, session, sink)
        return Answer(said=f"the sink {sink.name} gets what the query gives from now on")

    def readers_of(self, names: Iterable[str]) -> list[Run]:
        """The runs of flows that read one of these sources or tables."""
        wanted = {n.lower() for n in names}
        found = []
        for flow, run in list(self.runs.items()):
            mine = self.members(flow)
            needed = {s for e in mine for s in (*self.catalog.sources_of(e), *self.catalog.tables_of(e))}
            if needed & wanted and run.state not in ENDED:
                found.append(run)
        return found

    def close(self) -> None:
        """Let everything rest."""
        self.closed.set()
        for feed in self.feeds.values():
            feed.end()
        for flow in list(self.runs):
            self.stop(flow)


def _advice(planned: Plan | None) -> str:
    """What to say of state that grows for good."""
    found = list(growing(explain(planned))) if planned is not None else []
    said = next((s for s in found if "grows" in s), None)
    if said is not None:
        return f"\nnote: its state is kept {said}; {BOUND}"
    join = next((s for s in found if "all rows, for good" in s), None)
    return "" if join is None else f"\nnote: the join keeps {join}; {BOUND_JOIN}"
