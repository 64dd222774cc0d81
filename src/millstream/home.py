"""The public handle of a home: one directory with the log, the state, the store and the flows that run in it.

`runtime/open_home.py` implements the home, `live` executes SQL on it, and `serve` answers other processes.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from millstream import settings
from millstream.clock import Clock
from millstream.engine.spark_engines import SparkEngines
from millstream.errors import DefinitionError, UnknownName
from millstream.limits import Limits
from millstream.log.log import Log
from millstream.log.topic import Topic
from millstream.model.connectors import check_name
from millstream.model.flow import Flow
from millstream.model.reserved import check_user_columns
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Schema, zoned
from millstream.plan.plan import Plan
from millstream.plan.planner import plan
from millstream.result import Result
from millstream.runtime.engine_port import BuildEngine
from millstream.runtime.epoch.loop import EpochReport, FlowLoop
from millstream.runtime.epoch.stored_tables import Tables, as_table
from millstream.runtime.flow_assembly import LoopOptions
from millstream.runtime.home_dir import files_named
from millstream.runtime.inspect import status
from millstream.runtime.inspect.accounting import account_rows
from millstream.runtime.inspect.lag import lag_rows
from millstream.runtime.inspect.process_state import state_table
from millstream.runtime.open_home import DEFAULT_RESTARTS, OpenHome, spark_log
from millstream.runtime.recovery import checkpoint
from millstream.runtime.supervision.lease import HomeLock
from millstream.runtime.supervision.run import Run
from millstream.runtime.supervision.supervisor import SET_APART, Restarts
from millstream.sql.query.store_query import read_query
from millstream.store.port import AsOf, Store, epochs_read

if TYPE_CHECKING:
    from millstream.live.deployment import Deployment
    from millstream.live.session import Session
    from millstream.serve.local import LocalServer
    from millstream.sql.catalog import Catalog

_OPEN: weakref.WeakSet[Home] = weakref.WeakSet()
"""The homes of this process that have not been closed."""


class Home:
    """A directory that holds everything flows persist. One process owns it at a time; others read through the owner.

    Created by `millstream.open`. Use it as a context manager.
    """

    opens: ClassVar[type[OpenHome]] = OpenHome
    """The class of `open_home`; tests replace it."""

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock | None = None,
        memory: str | None = None,
        spark_master: str | None = None,
        state: str | None = None,
        query_timeout: float | None = None,
        query_memory: str | None = None,
        lock: HomeLock | None = None,
    ) -> None:
        limits = Limits.of(query_timeout, query_memory, home=Path(path))
        chosen_memory = settings.find(settings.MEMORY, memory, home=Path(path)).value
        self.open_home = self.opens(
            Path(path),
            SparkEngines(spark_log(Path(path)), memory=chosen_memory, master=spark_master),
            clock=clock,
            limits=limits,
            state=settings.find(settings.STATE, state, home=Path(path)).value,
            lock=lock,
            on_store_open=self._serve,
        )
        """The underlying home, used by `live` and the commands."""
        self._server: LocalServer | None = None
        self._reviving = threading.Lock()
        self._deployment: Deployment | None = None
        self._own_session: Session | None = None
        _OPEN.add(self)

    @property
    def path(self) -> Path:
        """The home directory."""
        return self.open_home.path

    @property
    def clock(self) -> Clock:
        """The clock that flows use."""
        return self.open_home.clock

    @property
    def log(self) -> Log:
        """The log with all topics."""
        return self.open_home.log

    @property
    def tables(self) -> Tables:
        """The versions of the stored tables."""
        return self.open_home.tables

    @property
    def store(self) -> Store:
        """The store. It is opened on first use."""
        return self.open_home.store

    @property
    def limits(self) -> Limits:
        """The time and memory limits of a query."""
        return self.open_home.limits

    @property
    def spark_log(self) -> Path:
        """The log file of Spark."""
        return self.open_home.spark_log

    # ------------------------------------------------------------ topics and tables

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
        """Return a topic of the home's log, to append to and to read from. Creates it if it does not exist and `schema`
        is set.

        Records with the same `key` go to the same one of its `partitions`. Records older than `retain`, or beyond
        `retain_bytes`, may be removed once every flow that reads the topic has consumed them.
        """
        if schema is None or self.log.exists(name):
            return self.log.topic(name)
        parsed = Schema.parse(schema) if isinstance(schema, str) else schema
        columns = parsed.to_arrow() if isinstance(parsed, Schema) else zoned(parsed)
        self.open_home.check_owner()
        retain_time = None if retain is None else Duration.positive(retain, what="retain").micros
        return self.log.create(
            name, columns, partitions=partitions, key=key, retain_time=retain_time, retain_bytes=retain_bytes
        )

    def topics(self) -> list[str]:
        """List the topics of the log."""
        return self.log.topics()

    def lag(self) -> list[dict[str, Any]]:
        """Return how far each flow lags behind each partition of the topics that it reads."""
        return lag_rows(self.store, self.log)

    def put_table(self, name: str, data: Any) -> None:
        """Store a table (Arrow, pandas, polars or rows) for `enrich` and for queries. A new version replaces the old
        one.

        A flow uses the newest version from its next epoch on, and records the version in the epoch record. If the table
        was created in SQL, the rows must match its columns, NOT NULL and PRIMARY KEY constraints; otherwise
        RecordRefused is raised.
        """
        from millstream.live.tables.constraints import constrained

        check_name(name, "table")
        table = as_table(data)
        check_user_columns(Schema.from_arrow(table.schema).names)
        with self.open_home.table_lock:
            self.open_home.store_table(*constrained(self.open_home, self.catalog, name, table))

    def drop_table(self, name: str) -> None:
        """Remove a stored table with all its versions. Refused (DefinitionError) while a running flow reads it."""
        self.open_home.drop_table(name)

    # ------------------------------------------------------------ flows

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
        """Start a flow in the background. It resumes where it last stopped in this home.

        A flow that fails is restarted according to `restarts` (None: it ends). A record that makes its epoch fail
        repeatedly is located and moved to ``<source>$errors``. With ``poison="stop"``, or for a view with
        ``on_error="fail"``, the flow ends instead.

        `on_epoch` is called with the report of every epoch. `on_output` is also called with all changes of the epoch
        (and, with `retract`, the old rows).
        """
        options = LoopOptions(placement, shards, retract)
        return self.open_home.start(
            plan(flow), options, on_epoch=on_epoch, on_output=on_output, restarts=restarts, poison=poison
        )

    def loop(
        self,
        planned: Plan,
        *,
        placement: str = "auto",
        shards: int | None = None,
        retract: bool = False,
        failpoint: Callable[[str], None] = lambda _: None,
        engine: BuildEngine | None = None,
    ) -> FlowLoop:
        """Return the epoch loop of a planned flow, to be stepped manually. `engine` builds an engine other than the
        Spark engine.
        """
        return self.open_home.loop(planned, LoopOptions(placement, shards, retract, failpoint, engine))

    def replay_late(self, view: str) -> int:
        """Add the late records of a view (``<view>$late``) to it: their windows are recomputed from all records.

        This happens only on request, and is recorded as a separate epoch. The flow must be running in this process.
        Returns the number of distinct event times of the records. Their rows in ``<view>$late`` name the epoch that
        replayed them.
        """
        flow = self._flow_of(view)
        if flow is None:
            raise UnknownName(f"there is no view `{view}` in this home")
        run = self.open_home.runs.get(flow)
        if run is None:
            raise DefinitionError(
                f"the flow `{flow}` of the view `{view}` is not running here", hint="start it first: home.start(flow)"
            )
        return run.replay_late(view)

    # ------------------------------------------------------------ queries

    def query(self, sql: str, *, failed_views: str = status.ERROR) -> Result:
        """Answer a SELECT (Spark SQL) over the views, as of one epoch.

        A failed view raises ViewFailed. With ``failed_views="warn"``, its last rows are returned with a warning.
        """
        status.checked_failed_views(failed_views)
        query = read_query(sql, self.store.tables(), dialect=self.store.dialect)
        warnings = self.open_home.warnings_for(query.tables, failed_views)
        as_of: AsOf = {}
        table = self.store.query(query.sql, apart=query.apart, as_of=as_of)
        return Result(table, warnings, epochs_read(as_of, query.tables))

    def session(self, *, start: bool = True) -> Session:
        """Open an SQL session. The first one starts the flows that SQL defines in this
        home, unless `start` is false.
        """
        from millstream.live.deployment import Deployment
        from millstream.live.session import Session

        with self._reviving, files_named(self.path):
            if self._deployment is None:
                self._deployment = Deployment(self.open_home, start=start)
        return Session(self._deployment)

    def sql(self, text: str) -> Result | None:
        """Execute SQL statements and return the rows of the last one, if it has any."""
        if self._own_session is None:
            self._own_session = self.session()
        answers = list(self._own_session.execute(text))
        return answers[-1].result if answers else None

    @property
    def catalog(self) -> Catalog | None:
        """The SQL catalog; None if no session has been opened yet."""
        return None if self._deployment is None else self._deployment.catalog

    # ------------------------------------------------------------ inspection

    def views(self) -> list[dict[str, Any]]:
        """List the views with rows, last epoch, watermark, freshness, and the counts of late records and errors."""
        return self.open_home.view_rows()

    def flows(self) -> list[dict[str, Any]]:
        """List the flows that have run in this home, with their progress."""
        return self.open_home.flow_rows()

    def flow_state(self, flow: str) -> str:
        """Return the state of a flow: running, idle, ... or stopped."""
        return self.open_home.flow_state(flow)

    def watermarks(self) -> list[dict[str, Any]]:
        """Return the progress of every partition of every source, and which partition holds its flow back."""
        return status.watermark_rows(self.store, self.clock.now())

    def state(self, view: str) -> pa.Table:
        """Return the state that computes a view, as of the last committed epoch: one row per key."""
        flow = self._flow_of(view)
        row = None if flow is None else self.store.last(flow)
        return state_table(self.open_home.state.of(str(flow)).runs, row, view)

    def accounting(self) -> list[dict[str, Any]]:
        """Account for every record: one row per source and one per view, each with `balanced`."""
        return account_rows(self.store, self.open_home.sources, self.clock.now())

    def _flow_of(self, view: str) -> str | None:
        """Return the flow that computes a view."""
        return next((v["flow"] for v in self.store.views() if v["view"] == view), None)

    # ------------------------------------------------------------ the home as a whole

    def checkpoint(self, name: str, to: str | Path | None = None) -> Path:
        """Save the whole home, between two epochs, even while flows run. Returns the directory of the checkpoint.

        The checkpoint is in ``checkpoints/<name>`` of the home, or in `to`. `millstream checkpoint restore` restores
        the home from it.
        """
        self.open_home.check_owner()
        folder = None if to is None else Path(to).absolute()
        return checkpoint.save(self.open_home.state, self.store, self.log, name, self.clock.now(), to=folder)

    def close(self) -> None:
        """Stop the flows and release the home. A home that is open when Python exits is closed then."""
        _OPEN.discard(self)
        if self._deployment is not None:
            self._deployment.close()
        self.open_home.stop_flows()
        if self._server is not None:
            self._server.close()
            self._server = None
        self.open_home.close()

    def __enter__(self) -> Home:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        runs = ", ".join(map(repr, self.open_home.runs.values()))
        return f"<Home {self.path}: {runs or 'no flow started'}>"

    def _serve(self) -> None:
        """Serve other processes on this machine over a socket in the home."""
        from millstream.serve.local import LocalServer

        self._server = LocalServer(self.path, self)


def _close_all() -> None:
    for home in list(_OPEN):
        with suppress(Exception):  # the next process that opens it recovers
            home.close()


# Not `atexit`: it runs after thread pools have shut down, and the epoch that is under way may still need one.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]
