"""An open home: the directory that this process owns, with its store, log, stored tables and running flows.

    home/
      millstream.json    format and version
      lock               held by the process that owns the home
      store.duckdb       the views
      flows/<flow>/      epochs/ state/ sources/
      state.json         where state is, if it is not in the home
      catalog.json       the SQL definitions
      tables/<table>/    versions of stored tables, for enrichment
      checkpoints/       what `checkpoint` saved
      repair/            what a repair or a restore replaced
      log/<topic>/       the topics of the log
      logs/spark.log     the messages of Spark
      query.sock         where other processes send queries

`live` executes SQL on it; `millstream.Home` is the public handle.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.clock import Clock, SystemClock
from millstream.connect.port import SourcePort
from millstream.errors import DefinitionError, LeaseLost, MillstreamError
from millstream.limits import Limits
from millstream.log.log import Log
from millstream.model.error_policy import FAIL
from millstream.plan.plan import Plan
from millstream.runtime import state_location
from millstream.runtime.engine_port import EngineFactory
from millstream.runtime.epoch.loop import EpochReport, FlowLoop
from millstream.runtime.epoch.stored_tables import Tables
from millstream.runtime.epoch.table_sink import Change, changed
from millstream.runtime.flow_assembly import LoopOptions, assemble_loop
from millstream.runtime.home_dir import check_format, files_named, make_home
from millstream.runtime.inspect import status
from millstream.runtime.recovery import checkpoint, reconcile, swap
from millstream.runtime.supervision.lease import HomeLock
from millstream.runtime.supervision.run import BROKEN, ENDED, Run
from millstream.runtime.supervision.supervisor import SET_APART, STOP, Restarts
from millstream.store.files import open_store
from millstream.store.port import Store, WriterState

DEFAULT_RESTARTS = Restarts()


def spark_log(home: Path) -> Path:
    """The Spark log file of a home."""
    return home.absolute() / "logs" / "spark.log"


class OpenHome:
    """A home that this process owns. Thread-safe."""

    def __init__(
        self,
        path: Path,
        engines: EngineFactory,
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        state: str | None = None,
        lock: HomeLock | None = None,
        on_store_open: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path.absolute()
        self.engines = engines
        self.clock = clock or SystemClock()
        self.limits = limits or Limits.of(home=self.path)
        """The time and memory limits of a query."""
        self.tables = Tables(self.path / "tables")
        self.log = Log(self.path / "log", self.clock)
        self.runs: dict[str, Run] = {}
        """The flows that were started here, by name, including those that have ended."""
        self._tables_read: dict[str, frozenset[str]] = {}
        """The stored tables that each flow reads that was started here, in lower case."""
        self.sources: dict[str, Mapping[str, SourcePort]] = {}
        """The sources of each flow that was started here."""
        self.table_lock = threading.RLock()
        """Held while rows of a stored table are changed."""
        self._opening = threading.Lock()
        self._store: Store | None = None
        self.on_store_open = on_store_open
        """Called once the store is open: from then on no other process can open its file."""
        self._lock = self._claim(lock)
        try:
            with files_named(self.path):
                self.state = state_location.opened(self.path, state)
        except BaseException:
            self._lock.release()
            raise

    def _claim(self, lock: HomeLock | None) -> HomeLock:
        """Take the lock, unless a standby already holds it, and finish what an earlier owner left half done."""
        try:
            with files_named(self.path):
                make_home(self.path)
                check_format(self.path / "millstream.json")
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        with files_named(self.path):
            lock = lock if lock is not None else HomeLock(self.path / "lock")
        try:
            with files_named(self.path):
                swap.finish(self.path)
                checkpoint.tidy(self.path, self.log)
        except BaseException:
            lock.release()
            raise
        return lock

    @property
    def store(self) -> Store:
        """The store. It is opened on first use."""
        with self._opening:
            if self._store is None:
                with files_named(self.path):
                    reconcile.check_store(self.path)
                    store = open_store(self.path, temp=self.path / "tmp", limits=self.limits)
                    self._store = self.tables.reconciled(store)
                self.on_store_open()
            return self._store

    @property
    def spark_log(self) -> Path:
        """The log file of Spark."""
        return spark_log(self.path)

    def check_owner(self) -> None:
        """Refuse to write when the home was moved or replaced while it was open."""
        self._lock.check()

    # ------------------------------------------------------------ flows

    def loop(self, plan: Plan, options: LoopOptions) -> FlowLoop:
        """Return the loop of a planned flow, to be stepped manually (the test kit) or by a thread (`start`)."""
        with files_named(self.path):
            return assemble_loop(self, plan, options)

    def start(
        self,
        plan: Plan,
        options: LoopOptions,
        *,
        on_epoch: Callable[[EpochReport], None] | None = None,
        on_output: Callable[[EpochReport], None] | None = None,
        restarts: Restarts | None = DEFAULT_RESTARTS,
        poison: str = SET_APART,
    ) -> Run:
        """Start a planned flow in the background; see `Home.start`."""
        running = self.runs.get(plan.flow)
        if running is not None and running.state not in ENDED:
            raise DefinitionError(f"the flow `{plan.flow}` is running already", hint="stop it first: run.stop()")
        self._tables_read[plan.flow] = frozenset(t.lower() for t in plan.tables)
        self.runs[plan.flow] = run = Run(
            plan.flow,
            lambda: self.loop(plan, options),
            on_epoch=on_epoch,
            on_output=on_output,
            on_health=self._note_health,
            restarts=restarts,
            poison=STOP if any(v.on_error == FAIL for v in plan.views) else poison,
        )
        return run

    def _note_health(self, run: Run) -> None:
        """Record that a flow has failed, for readers when nothing runs here; or that it runs again."""
        if isinstance(run.error, LeaseLost):
            return  # it runs elsewhere
        with suppress(MillstreamError, OSError):  # a full disk or a damaged store is why it failed
            self.store.note_failure(run.flow, run.status if run.state in BROKEN else None)

    def forget_run(self, flow: str) -> None:
        """Remove the run of a flow that was stopped and dropped, and its sources."""
        self.runs.pop(flow, None)
        self.sources.pop(flow, None)
        self._tables_read.pop(flow, None)

    @property
    def run_states(self) -> dict[str, str]:
        """The state of every flow that was started here, as text."""
        return {name: run.status for name, run in list(self.runs.items())}

    def flow_state(self, flow: str) -> str:
        """The state of a flow: running, idle, ... or stopped."""
        return status.state_of(flow, self.run_states, self.store.failures())

    def warnings_for(self, tables: Iterable[str], failed_views: str = status.WARN) -> tuple[str, ...]:
        """Return the warnings about the rows of some views: which of them have failed, and why (see `Home.query`)."""
        return status.warnings_for(self.store, self.run_states, tables, self.clock.now(), failed_views)

    def view_rows(self) -> list[dict[str, Any]]:
        """List the views with rows, last epoch, watermark, freshness, and the counts of late records and errors."""
        return status.view_rows(self.store, self.clock.now(), self.sources, self.run_states)

    def flow_rows(self) -> list[dict[str, Any]]:
        """List the flows that have run in this home, with their progress."""
        return status.flow_rows(self.store, self.run_states)

    # ------------------------------------------------------------ stored tables

    def store_table(self, name: str, table: pa.Table, writer_state: WriterState | None = None) -> None:
        """Replace the rows of a stored table with validated ones; `writer_state` names the sink and epoch of them."""
        store = self.store  # opened before the new version is written: opening removes interrupted changes
        self.check_owner()
        with self.table_lock, files_named(self.path):
            self.tables.put(name, table, lambda version: store.put_table(name, table, version, writer_state))

    def change_table(self, name: str, writer: str, epoch: int, change: Change) -> None:
        """Change a stored table for an epoch of a sink, unless it has that epoch."""
        with self.table_lock:
            if (new := changed(self.store, name, writer, epoch, change)) is not None:
                self.store_table(name, *new)

    def drop_table(self, name: str) -> None:
        """Remove a stored table with all its versions; refused while a running flow reads it."""
        self.check_unread(name)
        store = self.store
        with self.table_lock, files_named(self.path):
            self.tables.drop(name, lambda: store.forget_table(name))

    def check_unread(self, table: str, *, stopping: Container[str] = ()) -> None:
        """Refuse to drop a table that a running flow reads: its next epoch would fail. Flows that are `stopping` do not
        count.
        """
        for flow, run in list(self.runs.items()):
            reads = table.lower() in self._tables_read.get(flow, ())
            if reads and run.state not in ENDED and flow not in stopping:
                raise DefinitionError(
                    f"the running flow `{flow}` reads the table `{table}`", hint="stop the flow first: run.stop()"
                )

    # ------------------------------------------------------------ end

    def stop_flows(self) -> None:
        """Stop the flows, each after its current epoch."""
        for run in list(self.runs.values()):
            run.stop()

    def close(self) -> None:
        """Close the store and the log, and release the lock. The flows must have been stopped."""
        if self._store is not None:
            self._store.close()
            self._store = None
        self.log.close()
        self._lock.release()
