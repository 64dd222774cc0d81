"""What SQL has defined in a home, alive: its catalog, the flows that its views run in, and what follows a change.

A view belongs to a flow. Views that are made before their flow has read anything share it, and with it one pass over
their sources. One that is made later, and is to see the history, gets a flow of its own, which begins where it says and
catches up while the others keep running; with ``start = 'now'`` it joins the running flow at the next epoch instead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from itertools import chain, count
from typing import TYPE_CHECKING

from millstream.errors import (
    DefinitionError,
    DuplicateName,
    MillstreamError,
    StatementRefused,
    UnknownName,
)
from millstream.live import cleanup, sources
from millstream.live.answer import Answer
from millstream.live.definitions import Definition, Definitions, FlowNote
from millstream.live.feed import Feed
from millstream.live.trial_definitions import Trials
from millstream.model.connectors import LONGEST_NAME, check_name
from millstream.model.error_policy import FAIL
from millstream.model.flow import Flow
from millstream.plan.explain.node import growing
from millstream.plan.explain.plan_tree import explain
from millstream.plan.planner import plan
from millstream.plan.stages import Plan, view_of
from millstream.runtime.flow_assembly import LoopOptions
from millstream.runtime.supervision.run import ENDED, Run
from millstream.sql.bind.binder import Binder
from millstream.sql.catalog import KIND_OF, Catalog
from millstream.sql.connectors import NOW, sink_of
from millstream.sql.parse import grammar
from millstream.sql.parse.queries import BUILT_IN
from millstream.sql.parse.statements import (
    Create,
    CreateFunction,
    CreateSink,
    CreateSource,
    CreateTable,
    CreateView,
    Drop,
)
from millstream.sql.parse.text import Text, pieces

if TYPE_CHECKING:
    from millstream.live.session import Session
    from millstream.runtime.open_home import OpenHome

BOUND_JOIN = "a comparison of event times in ON bounds it, or WITH (state_ttl = '1 day')"
BOUND = "a window in GROUP BY bounds it, e.g. TUMBLE({}, INTERVAL '1' HOUR)"
NO_BOUND = "only a window over an event time bounds it, and no source has one: WATERMARK FOR ts AS ts"


class Deployment:
    """The definitions of one home and their flows. One for each home; its methods may be called from any thread."""

    def __init__(self, home: OpenHome, *, start: bool = True) -> None:
        self.home = home
        self.catalog = Catalog()
        self.definitions = Definitions.load(home.path, home.store.kept_catalog(), home.store.keep_catalog)
        self.broken: dict[str, MillstreamError] = {}
        """Definitions that no longer work, by name in lower case, and why."""
        self.runs: dict[str, Run] = {}
        self.feeds: dict[str, Feed] = {}
        self.closed = threading.Event()
        self.pending: set[str] = set()
        """Flows that are to be run as their definitions say now: once for all statements of a text."""
        self.lock = threading.RLock()
        """Held while the definitions are changed, and until what follows is done."""
        self._trials = Trials()
        self._starts = start
        home.log.settle()
        self._load()
        cleanup.finish(self)
        for flow in self.flows():
            self.restart(flow)

    # ------------------------------------------------------------ definitions

    def _load(self) -> None:
        """Take the kept definitions in; what no longer works is noted and left out."""
        for name, kept in self.definitions.entries.items():
            try:
                if kept.flow:
                    check_name(kept.flow, "flow")
                (piece,) = pieces(Text(kept.sql, f"definition of {name}"))
                entry = grammar.statement(piece, functions=self.catalog.functions, kept=True)
                assert isinstance(entry, Create)
                if isinstance(entry, CreateFunction):
                    self.catalog.functions[name] = sources.function(entry)
                self.catalog.add(entry, sources.parsed(kept.schema))
                self._try(self.catalog, entry)
            except MillstreamError as error:
                self.broken[name] = error

    def create(self, entry: Create, session: Session) -> Answer:
        """Take a new definition in, and set it to work."""
        with self.lock:
            kind, name = KIND_OF[type(entry)], entry.name.lower()
            if isinstance(entry, CreateFunction):
                if not session.administrator:
                    raise StatementRefused("only an administrator may register functions")
                if name in BUILT_IN:
                    raise DuplicateName(
                        f"`{entry.name}` is a function of SQL, and no definition can take its place",
                        hint="give the function another name",
                    )
            self.catalog.check_free(entry)
            there = self.catalog.get(entry.name)
            if there is not None:
                if entry.if_not_exists or (_same(there, entry) and name not in self.broken):
                    return Answer(said=f"the {kind} {entry.name} is there already", unchanged=True)
                self._check_replaceable(there, entry)
            elif isinstance(entry, CreateView | CreateTable | CreateSink):
                self._refuse_taken(entry)
            return Answer(said=self._add(entry, session))

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

    def _add(self, entry: Create, session: Session) -> str:
        """Take a definition in, in the place of one that is there. All that can be refused is refused before the
        commit; until then nothing has changed, and the one that is there goes on.
        """
        cleanup.finish(self)
        name, kind = entry.name.lower(), KIND_OF[type(entry)]
        kept = Definition(entry.piece.sql, kind)
        said = f"created the {kind} {entry.name}"
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
        tried = self._try(catalog, entry)
        if isinstance(entry, CreateTable):
            sources.check_table(catalog, entry)
            definitions.pending.append((cleanup.MAKE_TABLE, name))
        if isinstance(entry, CreateSink):
            sink_of(entry, catalog)
            sources.refuse_cycle(catalog, entry)
        if tried is not None:
            kept.flow = self._choose(catalog, definitions, entry, session)
            self._try_flow(catalog, definitions, kept.flow, entry)
            said += f" in the flow {kept.flow}" if kept.flow != entry.name else ""
        definitions.entries[name] = kept
        self.commit(catalog, definitions)
        self.broken.pop(name, None)
        self._settle(touched)
        if kept.flow:
            self.pending.add(kept.flow)
            session.begun.add(kept.flow)
        return said + _advice(tried) + _about_order(entry)

    def commit(self, catalog: Catalog, definitions: Definitions) -> None:
        """Make a change of the definitions durable, and true here: the one moment at which a statement takes place."""
        self.home.check_owner()
        definitions.save()
        self.catalog, self.definitions = catalog, definitions
        self.broken = {n: e for n, e in self.broken.items() if n in definitions.entries}

    def _settle(self, touched: Iterable[str]) -> None:
        """Take the steps that follow a commit; flows that have lost a view run without it when the text ends."""
        for flow in touched:
            self.stop(flow)
        self.pending |= set(touched) & set(self.flows())
        cleanup.finish(self)

    def _try(self, catalog: Catalog, entry: Create) -> Plan | None:
        """Refuse a definition that does not work; the plan of one that has one."""
        flow = Flow("trial")
        bound = Binder(flow, catalog, sources.GENERATORS).definition(entry)
        return None if bound is None else plan(flow)

    def _try_flow(self, catalog: Catalog, definitions: Definitions, flow: str, entry: Create) -> None:
        """Refuse a definition that does not work in its flow, beside the others that are there."""
        members = self._members(catalog, definitions, flow)
        self._trials.definition(flow, self._start(definitions, flow), catalog, members, entry)

    # ------------------------------------------------------------ flows

    def flows(self) -> list[str]:
        """The flows that SQL has made."""
        return self.definitions.used_flows()

    def members(self, flow: str) -> list[Create]:
        """The views and sinks of a flow that work."""
        return self._members(self.catalog, self.definitions, flow)

    def _members(self, catalog: Catalog, definitions: Definitions, flow: str) -> list[Create]:
        names = [n for n, d in definitions.entries.items() if d.flow == flow and n not in self.broken]
        return [e for n in names if (e := catalog.get(n)) is not None]

    def flow_name(self, name: str) -> str:
        """The flow of a view or sink; nothing when it has none, as when it is dropped meanwhile."""
        found = self.definitions.entries.get(name.lower())
        return found.flow if found is not None else ""

    def flow_of(self, name: str) -> str:
        """The flow of a view or sink, or the flow of this name."""
        found = self.definitions.entries.get(name.lower())
        if found is not None and found.flow:
            return found.flow
        if name in self.flows():
            return name
        raise self.catalog.missing(name, "view, sink or flow")

    def _choose(self, catalog: Catalog, definitions: Definitions, entry: Create, session: Session) -> str:
        """The flow that a new view or sink is to run in, noted in the definitions."""
        options = entry.options if isinstance(entry, CreateView) else {}
        asked = str(options.get("flow") or session.settings["flow"] or "")
        start = str(options.get("start") or session.settings["start"] or "")
        if asked:
            check_name(asked, "flow")
            asked = next((f for f in definitions.flows if f.lower() == asked.lower()), asked)
        mine = catalog.sources_of(entry)
        if isinstance(entry, CreateSink) and entry.view:
            wanted = definitions.entries[entry.view.lower()].flow
            if wanted and self._is_unread(definitions, wanted):
                return wanted
        used = definitions.used_flows()
        for flow in [asked] if asked else used:
            note = definitions.flows.get(flow)
            if note is None or (not asked and self._stops(catalog, definitions, flow, options)):
                continue
            theirs = {s for e in self._members(catalog, definitions, flow) for s in catalog.sources_of(e)}
            fits = note.start == start and (theirs & mine or asked)
            if (start == NOW and theirs >= mine) or (fits and self._is_unread(definitions, flow)):
                if not self._knows(flow, entry.name):
                    return flow
        if asked and asked in definitions.flows:
            raise DefinitionError(
                f"the flow `{asked}` has begun: a view that joins it sees what comes from now on only",
                hint=f"WITH (flow = '{asked}', start = 'now'), or leave the flow out and it gets one of its own",
            )
        alone = not any(mine & catalog.sources_of(e) for f in used for e in self._members(catalog, definitions, f))
        flow = self._unused(definitions, asked or ("_".join(sorted(mine)) if mine and alone else entry.name))
        definitions.flows[flow] = FlowNote(start)
        return flow

    def _stops(self, catalog: Catalog, definitions: Definitions, flow: str, options: Mapping[str, object]) -> bool:
        """Whether a view that is to fail with its first bad row would stop others if it shared their flow."""
        members = self._members(catalog, definitions, flow)
        given = [options, *(e.options for e in members if isinstance(e, CreateView))]
        return any(str(o.get("on_error", "")).lower() == FAIL for o in given)

    def _has_read(self, definitions: Definitions, flow: str) -> bool:
        return flow not in definitions.dropped and self.home.store.last(flow) is not None

    def _is_unread(self, definitions: Definitions, flow: str) -> bool:
        """Whether a flow has read nothing, so that a view that joins it misses nothing. One that runs is stopped first:
        its first epoch may be under way. It is started again when the text ends, whatever comes of the statement.
        """
        if flow in self.runs and not self._has_read(definitions, flow):
            self.pending.add(flow)
            self.stop(flow)
        return not self._has_read(definitions, flow)

    def _start(self, definitions: Definitions, flow: str) -> str:
        """Where a flow begins to read; nothing for one that has begun."""
        note = definitions.flows.get(flow, FlowNote())
        return "" if self._has_read(definitions, flow) else note.start

    def _knows(self, flow: str, view: str) -> bool:
        """Whether state of an earlier view of this name may still be in a flow."""
        last = self.home.store.last(flow)
        return last is not None and any(view_of(step) == view for step in last.version)

    def _unused(self, definitions: Definitions, name: str) -> str:
        """A name for a new flow: this one, or one like it that nothing has. Those of flows that go with this statement
        are free.
        """
        there = {*self.home.store.flows(), *(f.name for f in (self.home.path / "flows").glob("*"))}
        taken = {f.lower() for f in (there - {*definitions.dropped}) | {*definitions.flows, "checkpoint"}}
        others = (f"{name[: LONGEST_NAME - 6]}_{i}" for i in count(2))
        return next(n for n in chain([name], others) if n.lower() not in taken and len(n) <= LONGEST_NAME)

    def bound(self, flow: str) -> Flow | None:
        """The flow of this name with all of its views; None when it has none that works. What no longer works is noted
        as broken, and left out.
        """
        as_before: set[str] = set()
        while members := self.members(flow):
            made, start = Flow(flow), self._start(self.definitions, flow)
            binder = Binder(made, self.catalog, sources.GENERATORS, start=start, as_before=as_before)
            for entry in members:
                try:
                    binder.definition(entry)
                except MillstreamError as error:
                    self.broken[entry.name.lower()] = error
                    break
            else:
                older = self._without_keys_of_or(made, binder.keyed_by_or)
                if not older:
                    return made
                as_before |= older
        return None

    def _without_keys_of_or(self, made: Flow, keyed: set[str]) -> set[str]:
        """Which of some views have state from before their joins took keys out of OR."""
        if not keyed:
            return set()
        known = self.home.store.fingerprints(made.name)
        views = {v.name.lower(): v for v in plan(made).views if v.name.lower() in keyed}
        return {n for n, v in views.items() if known.get(v.name, v.fingerprint) != v.fingerprint}

    def planned(self, flow: str) -> Plan | None:
        """The plan of a flow."""
        made = self.bound(flow)
        return None if made is None else plan(made)

    def restart(self, flow: str) -> None:
        """Run a flow as its definitions say now; it goes on where it was."""
        with self.lock:
            self.stop(flow)
            cleanup.finish(self)
            if not self._starts or self.definitions.flows.get(flow, FlowNote()).paused:
                return
            made = self.bound(flow)
            if made is None:
                return
            feed = self.feeds.setdefault(flow, Feed())
            try:
                self.runs[flow] = self.home.start(
                    plan(made),
                    LoopOptions(retract=True),
                    on_output=lambda r: feed.take(r.number, dict(r.output.changes)),
                )
            except MillstreamError as error:  # of these views; nothing else has to do with it
                self.broken.update({e.name.lower(): error for e in self.members(flow)})

    def flush(self) -> None:
        """Set to work what was defined. Does not wait where there is nothing to do: another statement may hold the lock
        for as long as an epoch takes, and questions are answered meanwhile.
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
        """The runs of some flows, after statements under way that may be starting them."""
        wanted = sorted(flows)
        if not wanted:
            return []
        with self.lock:
            return [r for f in wanted if (r := self.runs.get(f)) is not None]

    def stop(self, flow: str) -> None:
        """Let a flow rest, after the epoch that is being performed, however long that takes: what follows may remove
        what the flow works with.
        """
        run = self.runs.get(flow)
        if run is not None:
            run.stop(timeout=None)
            del self.runs[flow]

    def said_of_broken(self, flow: str) -> str:
        """Which views of a flow do not work, and why; nothing when all do."""
        mine = [n for n, d in self.definitions.entries.items() if d.flow == flow and n in self.broken]
        return "; ".join(f"the view `{n}` does not work: {self.broken[n].message}" for n in mine)

    def drop(self, statement: Drop) -> Answer:
        """DROP something, and with CASCADE what depends on it."""
        with self.lock:
            kind, name = statement.kind.lower(), statement.name.lower()
            cleanup.finish(self)
            if kind == "topic":
                return cleanup.topic(self, statement)
            kept, entry = self.definitions.entries.get(name), self.catalog.get(name)
            spelled = entry.name if entry is not None else name
            if kept is None or kept.kind != kind:
                if statement.if_exists:
                    return Answer(said=f"there is no {kind} {statement.name}")
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
            gone = [name, *(d.name.lower() for d in dependents)]
            for each in gone:
                catalog.remove(each)
            touched = definitions.remove(gone)
            self.commit(catalog, definitions)
            self._settle(touched)
            also = f", and {', '.join(d.name for d in dependents)}" if dependents else ""
            return Answer(said=f"dropped the {kind} {spelled}{also}")

    def attach(self, sink: CreateSink, query_text: str, session: Session) -> Answer:
        """INSERT INTO sink SELECT: what the query gives is written to the sink from now on."""
        if sink.is_fed:
            if sink.piece.sql.endswith(f" AS {query_text}"):
                return Answer(said=f"the sink {sink.name} gets what this query gives already", unchanged=True)
            raise DefinitionError(f"something is written to the sink `{sink.name}` already", hint="make another sink")
        (piece,) = pieces(Text(f"{_head(sink)} AS {query_text}"))
        entry = grammar.statement(piece, functions=self.catalog.functions)
        assert isinstance(entry, CreateSink)
        with self.lock:
            self._add(entry, session)
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
        self._starts = False
        for feed in list(self.feeds.values()):
            feed.end()
        for run in list(self.runs.values()):
            run.stop()
        self.runs.clear()


def _about_order(entry: Create) -> str:
    """What to say of an ORDER BY that changes nothing."""
    query = entry.query if isinstance(entry, CreateView) else None
    alone = query is not None and query.args.get("order") is not None and query.args.get("limit") is None
    return "\nnote: a view has no order; its ORDER BY is ignored, order when you ask" if alone else ""


def _advice(planned: Plan | None) -> str:
    """What to say of state that grows for good."""
    found = list(growing(explain(planned))) if planned is not None else []
    said = next((s for s in found if "grows" in s), None)
    if said is not None:
        assert planned is not None
        times = [s.options.event_time for s in planned.sources if s.options.event_time is not None]
        return f"\nnote: its state is kept {said}; {BOUND.format(times[0]) if times else NO_BOUND}"
    join = next((s for s in found if "all rows, for good" in s), None)
    return "" if join is None else f"\nnote: the join keeps {join}; {BOUND_JOIN}"


def _head(sink: CreateSink) -> str:
    return sink.piece.sql.rstrip()


def _same(there: Create, entry: Create) -> bool:
    """Whether a definition is written as the one that is there. INSERT INTO adds a query to the text of a sink."""
    if isinstance(there, CreateSink) and isinstance(entry, CreateSink) and there.query is not None and not entry.is_fed:
        return there.piece.sql.startswith(f"{_head(entry)} AS ")
    return there.piece.sql == entry.piece.sql
