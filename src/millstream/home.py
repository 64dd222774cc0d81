"""A home: one directory that holds log, state and store, and the flows that run in it.

millstream.json    format and version
lock               held by the process that owns the home
store.duckdb       the views
flows/<flow>/      epochs/ state/ sources/
catalog.json       what SQL has defined
tables/<table>/    versions of stored tables, for enrichment
checkpoints/       what `checkpoint` kept
repair/            what a repair or a restore has replaced
log/<topic>/       the topics of the log
logs/spark.log     what Spark has to say
query.sock         where other processes ask
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream import paths, settings
from millstream.clock import Clock, SystemClock
from millstream.connect.port import SourcePort
from millstream.errors import DefinitionError, LeaseLost, MillstreamError, UnknownName
from millstream.limits import Limits
from millstream.log.log import Log
from millstream.log.topic import Topic
from millstream.model.connectors import SparkStream, check_name
from millstream.model.error_policy import FAIL
from millstream.model.flow import Flow
from millstream.model.reserved import check_user_columns
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Schema, zoned
from millstream.plan.planner import plan
from millstream.plan.stages import Batches, Plan
from millstream.result import Result
from millstream.runtime.engine_port import EnginePort
from millstream.runtime.epoch.loop import EpochReport, FlowLoop
from millstream.runtime.epoch.outbox import Outbox
from millstream.runtime.epoch.progress import Progress
from millstream.runtime.epoch.records import RecordBook
from millstream.runtime.epoch.stored_tables import Tables, as_table
from millstream.runtime.epoch.table_sink import Change, changed
from millstream.runtime.home_dir import check_format, files_named, make_home
from millstream.runtime.inspect import status
from millstream.runtime.inspect.accounting import account_rows
from millstream.runtime.inspect.lag import lag_rows
from millstream.runtime.inspect.process_state import state_table
from millstream.runtime.recovery import checkpoint, reconcile, swap
from millstream.runtime.supervision.lease import HomeLock
from millstream.runtime.supervision.run import BROKEN, ENDED, Run
from millstream.runtime.supervision.supervisor import SET_APART, STOP, Restarts
from millstream.runtime.wiring import errors_of, sink_generations, sink_ports, source_port, view_specs
from millstream.sql.query.store_query import question
from millstream.store.port import AsOf, Taken, epochs_read

if TYPE_CHECKING:
    from millstream.engine.input.tap import Tap
    from millstream.live.deployment import Live
    from millstream.live.session import Session
    from millstream.sql.catalog import Catalog
    from millstream.store.duckdb import DuckStore

DEFAULT_RESTARTS = Restarts()


class Home:
    """A directory with everything that flows keep. One process owns it at a time; others read through that one.

    Made by `millstream.open`; use it as a context manager.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock | None = None,
        memory: str | None = None,
        query_timeout: float | None = None,
        query_memory: str | None = None,
        lock: HomeLock | None = None,
    ) -> None:
        self.limits = Limits.of(query_timeout, query_memory, home=Path(path))
        """What a question may use: seconds and bytes."""
        self.path = Path(path).absolute()
        self.clock = clock or SystemClock()
        self.tables = Tables(self.path / "tables")
        self.log = Log(self.path / "log", self.clock)
        self._memory = settings.find(settings.MEMORY, memory, home=self.path).value
        self._opening, self._reviving = threading.Lock(), threading.Lock()
        self._runs: dict[str, Run] = {}
        self._ports: dict[str, Mapping[str, SourcePort]] = {}
        self._store: DuckStore | None = None
        self._server: Any = None
        self._live: Live | None = None
        self._speaking: Session | None = None
        self.table_lock = threading.RLock()
        """Held while rows of a stored table are changed."""
        try:
            with files_named(self.path):
                make_home(self.path)
                check_format(self.path / "millstream.json")
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        with files_named(self.path):
            self._lock = lock if lock is not None else HomeLock(self.path / "lock")
        try:
            with files_named(self.path):
                swap.finish(self.path)
                checkpoint.tidy(self.path, self.log)
        except BaseException:
            self._lock.release()
            raise

    @property
    def store(self) -> DuckStore:
        """The store, opened when it is first needed."""
        with self._opening:
            if self._store is None:
                from millstream.store.duckdb import DuckStore

                with files_named(self.path):
                    reconcile.check_store(self.path)
                    store = DuckStore(self.path / "store.duckdb", temp=self.path / "tmp", limits=self.limits)
                    self._store = self.tables.reconciled(store)
                self._serve()  # from now on no other process can open the file
            return self._store

    @property
    def spark_log(self) -> Path:
        """The file that Spark writes its messages to."""
        return self.path / "logs" / "spark.log"

    def topic(
        self,
        name: str,
        *,
        schema: str | Schema | pa.Schema | None = None,
        partitions: int = 1,
        key: str | None = None,
        retain: str | timedelta | Duration | None = None,
        retain_bytes: int | None = None,
    ) -> Topic:
        """A topic of the home's log, to append to and to read; it is made if it is not there and a schema is given.

        Records with the same `key` go to the same of its `partitions`. Those older than `retain`, or beyond
        `retain_bytes`, may be removed once every flow that reads the topic has taken them.
        """
        if schema is None or self.log.exists(name):
            return self.log.topic(name)
        parsed = Schema.parse(schema) if isinstance(schema, str) else schema
        columns = parsed.to_arrow() if isinstance(parsed, Schema) else zoned(parsed)
        self.check_owner()
        kept = None if retain is None else Duration.positive(retain, what="retain").micros
        return self.log.create(
            name, columns, partitions=partitions, key=key, retain_time=kept, retain_bytes=retain_bytes
        )

    def topics(self) -> list[str]:
        """The topics of the log."""
        return self.log.topics()

    def lag(self) -> list[dict[str, Any]]:
        """For every flow that reads a topic, and every partition, how far it is behind what is there."""
        return lag_rows(self.store, self.log)

    def start(
        self,
        flow: Flow,
        *,
        placement: str = "auto",
        shards: int | None = None,
        on_epoch: Callable[[EpochReport], None] | None = None,
        on_output: Callable[[EpochReport], None] | None = None,
        restarts: Restarts | None = DEFAULT_RESTARTS,
        poison: str = SET_APART,
        retract: bool = False,
    ) -> Run:
        """Start a flow in the background; it goes on where it was when it last ran here.

        When it fails it is started again, as `restarts` says (None: it ends). A record that breaks its epoch again and
        again is found and put into ``<source>$errors``; with ``poison="stop"``, or a view with ``on_error="fail"``, the
        flow ends instead.

        `on_epoch` is told of every epoch; `on_output` too, with all that it changed (and with `retract`, what was true
        before).
        """
        running = self._runs.get(flow.name)
        if running is not None and running.state not in ENDED:
            raise DefinitionError(f"the flow `{flow.name}` is running already", hint="stop it first: run.stop()")
        planned = plan(flow)
        poison = STOP if any(v.on_error == FAIL for v in planned.views) else poison
        make = lambda: self.loop(planned, placement=placement, shards=shards, retract=retract)  # noqa: E731
        self._runs[flow.name] = run = Run(
            flow.name,
            make,
            on_epoch=on_epoch,
            on_output=on_output,
            on_health=self._note_health,
            restarts=restarts,
            poison=poison,
        )
        return run

    def loop(
        self,
        planned: Plan,
        *,
        placement: str = "auto",
        shards: int | None = None,
        retract: bool = False,
        failpoint: Callable[[str], None] = lambda _: None,
        engine: Callable[[Plan, Mapping[str, SourcePort], Path], EnginePort] | None = None,
    ) -> FlowLoop:
        """The loop of a planned flow, to be stepped by hand (the test kit) or by a thread (`start`).

        `engine` makes another engine than the one on Spark, from a plan, its sources and the folder for state.
        """
        with files_named(self.path):
            return self._loop(planned, placement, shards, retract, failpoint, engine)

    def _loop(
        self,
        planned: Plan,
        placement: str,
        shards: int | None,
        retract: bool,
        failpoint: Callable[[str], None],
        engine: Callable[[Plan, Mapping[str, SourcePort], Path], EnginePort] | None,
    ) -> FlowLoop:
        starting = self._begin(planned) if engine is None else None  # Java takes its time; the rest is done meanwhile
        from millstream.engine.driver.work import EpochInput, Replay

        root = paths.flow_folder(self.path, planned.flow)
        last = self.store.last(planned.flow)
        progress = Progress.from_json(last.progress) if last is not None else Progress()
        ports = {
            s.name: source_port(root, planned.flow, s, progress.offsets.get(s.name, {}), self.log)
            for s in planned.sources
        }
        reconcile.check(planned, self.store, RecordBook(root / "epochs"), root / "state", ports)
        reconcile.note_kinds(root, ports)
        self._ports[planned.flow] = ports
        progress.begin(planned, ports)
        newest = self.tables.newest()
        for name in planned.tables:
            if name not in newest:
                raise UnknownName(
                    f"there is no stored table `{name}` in this home",
                    detail="there are: " + (", ".join(newest) or "none yet"),
                    hint=f"put one there first: home.put_table({name!r}, data)",
                )
        self.tables.check({name: newest[name] for name in planned.tables})
        if engine is not None:
            chosen = engine(planned, ports, root / "state")
        else:
            assert starting is not None
            tables = {name: self.tables.path(name, newest[name]) for name in planned.tables}
            cores = shards or os.cpu_count() or 2
            chosen = self._engine(starting, planned, ports, root, tables, placement, cores, retract)
        generations = sink_generations(chosen.plan, self.store)
        self.store.prepare(planned.flow, view_specs(chosen.plan), errors_of(chosen.plan))
        sinks = sink_ports(chosen.plan, self.log, generations, self._change_table)
        token = self.store.take_lease(planned.flow, f"{socket.gethostname()}:{os.getpid()}")
        return FlowLoop(
            chosen,
            ports,
            self.store,
            root,
            self.clock,
            token,
            progress=progress,
            tables=self.tables,
            outbox=Outbox(chosen.plan, sinks, root / "out", generations),
            taps=self._taps(planned, ports, root),
            make_input=EpochInput,
            make_replay=Replay,
            failpoint=failpoint,
            check_owner=self.check_owner,
        )

    def _begin(self, planned: Plan) -> Future[Any]:
        """Start Spark beside this thread."""
        from millstream.engine.spark import session

        python = any(isinstance(op, Batches) for scan in planned.scans for op in scan.ops)
        return session.begin(self.spark_log, memory=self._memory, python=python)

    def _engine(
        self,
        starting: Future[Any],
        planned: Plan,
        ports: Mapping[str, SourcePort],
        root: Path,
        tables: Mapping[str, Path],
        placement: str,
        shards: int,
        retract: bool,
    ) -> EnginePort:
        from millstream.engine.epoch import Engine
        from millstream.engine.placement import Placement

        return Engine(
            starting.result(),
            planned,
            ports,
            root / "state",
            tables=tables,
            placement=Placement(placement, shards),
            retract=retract,
            log=self.spark_log,
        )

    def query(self, sql: str, *, failed_views: str = status.ERROR) -> Result:
        """Answer a SELECT (Spark SQL) over the views, as of one epoch.

        A view that has failed raises ViewFailed; with ``failed_views="warn"`` its last rows come with a warning.
        """
        status.checked_failed_views(failed_views)
        asked = question(sql, self.store.tables())
        warnings = self.warnings_for(asked.tables, failed_views)
        as_of: AsOf = {}
        table = self.store.query(asked.sql, apart=asked.apart, as_of=as_of)
        return Result(table, warnings, epochs_read(as_of, asked.tables))

    def warnings_for(self, tables: Iterable[str], how: str = status.WARN) -> tuple[str, ...]:
        """What to know about the rows of some views: which of them have failed, and why (see `query`)."""
        return status.warnings_for(self.store, self._states(), tables, self.clock.now(), how)

    def _states(self) -> dict[str, str]:
        return {name: run.status for name, run in self._runs.items()}

    def _note_health(self, run: Run) -> None:
        """Remember that a flow has failed, for those who look when nothing runs here; or that it runs again."""
        if isinstance(run.error, LeaseLost):
            return  # it runs elsewhere
        with suppress(MillstreamError, OSError):  # a disk that is full, or a store that is damaged, is why it failed
            self.store.note_failure(run.flow, run.status if run.state in BROKEN else None)

    def session(self, *, start: bool = True) -> Session:
        """A session of SQL. The first one brings what SQL has defined in this home to life (unless not to `start`)."""
        from millstream.live.deployment import Live
        from millstream.live.session import Session

        with self._reviving, files_named(self.path):
            if self._live is None:
                self._live = Live(self, start=start)
        return Session(self._live)

    def sql(self, text: str) -> Result | None:
        """Carry out statements of SQL, and give the rows of the last one, if it has any."""
        if self._speaking is None:
            self._speaking = self.session()
        answers = list(self._speaking.execute(text))
        return answers[-1].result if answers else None

    @property
    def catalog(self) -> Catalog | None:
        """What SQL has defined; None when no session was opened yet."""
        return None if self._live is None else self._live.catalog

    def views(self) -> list[dict[str, Any]]:
        """The views with rows, last epoch, watermark, freshness, late and error counts."""
        return status.view_rows(self.store, self.clock.now(), self._ports, self._states())

    def flows(self) -> list[dict[str, Any]]:
        """The flows that have run here, and how far they have come."""
        return status.flow_rows(self.store, self._states())

    def watermarks(self) -> list[dict[str, Any]]:
        """How far every partition of every source has come, and which one holds its flow back."""
        return status.watermark_rows(self.store, self.clock.now())

    def state(self, view: str) -> pa.Table:
        """What the process behind a view remembers, as of the last committed epoch: a row per key."""
        flow = next((v["flow"] for v in self.store.views() if v["view"] == view), None)
        root = paths.flow_folder(self.path, str(flow)) / "state"
        return state_table(root, None if flow is None else self.store.last(flow), view)

    def accounting(self) -> list[dict[str, Any]]:
        """Where every record went: one row per source and one per view, each with `balanced`."""
        return account_rows(self.store, self._ports, self.clock.now())

    def checkpoint(self, name: str, to: str | Path | None = None) -> Path:
        """Keep the whole home as it is between two epochs, also while flows run; returns the folder.

        It is in ``checkpoints/<name>`` of the home, or in `to`. `millstream checkpoint restore` puts the home back.
        """
        self.check_owner()
        folder = None if to is None else Path(to).absolute()
        return checkpoint.save(self.path, self.store, self.log, name, self.clock.now(), to=folder)

    def replay_late(self, view: str) -> int:
        """Take the late records of a view (``<view>$late``) into it: their windows are computed anew from all records.

        An explicit act, done and recorded as an epoch of its own. The flow must be running here. Returns how many
        different event times the records had; their rows in ``<view>$late`` say in which epoch they were replayed.
        """
        flow = next((v["flow"] for v in self.store.views() if v["view"] == view), None)
        if flow is None:
            raise UnknownName(f"there is no view `{view}` in this home")
        run = self._runs.get(flow)
        if run is None:
            raise DefinitionError(
                f"the flow `{flow}` of the view `{view}` is not running here", hint="start it first: home.start(flow)"
            )
        return run.replay_late(view)

    def put_table(self, name: str, data: Any) -> None:
        """Keep a table (Arrow, pandas, polars or rows) for `enrich` and for queries; a new version replaces the old.

        A flow uses the newest version from its next epoch on, and says in the epoch's record which one it was. Rows for
        a table that SQL has made must fit its columns, NOT NULL and PRIMARY KEY; RecordRefused otherwise.
        """
        from millstream.live.tables.constraints import constrained

        check_name(name, "table")
        table = as_table(data)
        check_user_columns(Schema.from_arrow(table.schema).names)
        with self.table_lock:
            self.store_table(*constrained(self, name, table))

    def store_table(self, name: str, table: pa.Table, taken: Taken | None = None) -> None:
        """Replace the rows of a stored table by some that were checked; `taken` is the sink and epoch they are from."""
        store = self.store  # opened before the new version is written: opening removes what was cut off
        self.check_owner()
        with self.table_lock, files_named(self.path):
            self.tables.put(name, table, lambda version: store.put_table(name, table, version, taken))

    def _change_table(self, name: str, writer: str, epoch: int, change: Change) -> None:
        """Change a stored table for an epoch of a sink, unless it has that epoch."""
        with self.table_lock:
            if (new := changed(self.store, name, writer, epoch, change)) is not None:
                self.store_table(name, *new)

    def drop_table(self, name: str) -> None:
        """Forget a stored table, with all its versions."""
        store = self.store
        with self.table_lock, files_named(self.path):
            self.tables.drop(name, lambda: store.forget_table(name))

    def check_owner(self) -> None:
        """Refuse to write when the home was moved or replaced while it was open."""
        self._lock.check()

    def forget_run(self, flow: str) -> None:
        """Forget the run of a flow that was stopped and dropped, and what it read from."""
        self._runs.pop(flow, None)
        self._ports.pop(flow, None)

    def flow_state(self, flow: str) -> str:
        """The state of a flow: running, idle, ... or stopped."""
        return status.state_of(flow, self._states(), self.store.failures())

    def close(self) -> None:
        """Stop the flows and let go of the home."""
        if self._live is not None:
            self._live.close()
        for run in self._runs.values():
            run.stop()
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._store is not None:
            self._store.close()
            self._store = None
        self.log.close()
        self._lock.release()

    def __enter__(self) -> Home:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        from millstream.serve.local import LocalServer

        self._server = LocalServer(self.path, self)  # answers other processes on this machine

    def __repr__(self) -> str:
        return f"<Home {self.path}: {', '.join(map(repr, self._runs.values())) or 'no flow started'}>"

    def _taps(self, planned: Plan, ports: Mapping[str, SourcePort], root: Path) -> list[Tap]:
        if not any(isinstance(s.connector, SparkStream) for s in planned.sources):
            return []
        from millstream.engine.input.tap import taps

        return taps(planned.sources, ports, root / "taps", self.spark_log, self._memory)
