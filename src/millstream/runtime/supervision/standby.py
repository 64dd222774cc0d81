"""A standby: a second process that is ready to resume the flows of a home when its owner dies or freezes.

A **passive** standby has everything loaded: modules, Spark's Java process, bound plans. An **active** one also runs the
epochs of the owner, from their records, with a separate engine and state, so that all its code is warm; the output is
discarded. Neither writes to the home except to its own directory, ``shadow/<pid>``.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millstream import paths, processes
from millstream.clock import BEGINNING, SystemClock
from millstream.connect.port import SourcePort
from millstream.connect.registry import SourceContext, follow_source
from millstream.engine.driver.epoch_io import EpochInput
from millstream.errors import DefinitionError, MillstreamError
from millstream.log.log import Log
from millstream.plan.plan import Plan, PlannedSource
from millstream.runtime.engine_port import EngineFactory, EnginePort
from millstream.runtime.epoch.compactor import Compactor
from millstream.runtime.epoch.epoch_input import input_of
from millstream.runtime.epoch.kept_versions import Upkeep
from millstream.runtime.epoch.records import EpochRecord, RecordBook
from millstream.runtime.epoch.stored_tables import Tables
from millstream.runtime.supervision.lease import LEASE_SECONDS, HomeLock, HomeOwner, owner_of, wait_for
from millstream.state.flow_state import FlowState
from millstream.state.version import Version

PASSIVE, ACTIVE = "passive", "active"
MODES = (PASSIVE, ACTIVE)
POLL_SECONDS = 0.05


def standby_log(home: Path) -> Path:
    """The Spark log file of a standby of a home."""
    return home.absolute() / "logs" / "standby.log"


@dataclass(frozen=True)
class TakenOver:
    """A home that was taken over: its lock, its previous owner, and when each flow last closed an epoch (wall time)."""

    lock: HomeLock
    before: HomeOwner | None
    closed: Mapping[str, float]


class Standby:
    """Waits for a home. Call `warm` first, then `wait`, and `close` at the end in any case."""

    def __init__(
        self,
        home: Path,
        plans: Sequence[Plan],
        mode: str = PASSIVE,
        *,
        engines: EngineFactory,
        lease: float = LEASE_SECONDS,
    ) -> None:
        if mode not in MODES:
            raise DefinitionError(f"unknown kind of standby: {mode!r}", hint="one of: " + ", ".join(MODES))
        self.home, self.mode = home.absolute(), mode
        self._plans, self._engines, self._lease = plans, engines, lease
        self._shadows: list[Shadow] = []
        self._folder = self.home / "shadow" / str(os.getpid())

    def warm(self) -> None:
        """Load, start Spark and bind the plans; an active standby begins to follow."""
        if not (self.home / "millstream.json").exists():
            return  # the home has not been used yet
        for left in (self.home / "shadow").glob("*"):  # left by standbys that were killed
            if left.name.isdigit() and processes.started(int(left.name)) is None:
                _removed(left, self.home)
        for plan in self._plans:
            shadow = Shadow(self.home, plan, self._folder / paths.part(plan.flow, "flow"), self._engines)
            shadow.warm()
            if self.mode == ACTIVE and shadow.can_follow:
                shadow.start()
                self._shadows.append(shadow)

    def wait(self, give_up: Callable[[], bool] = lambda: False) -> TakenOver | None:
        """Wait until the home is free, or its owner frozen, and take it. None when `give_up` returns true."""
        before: list[HomeOwner | None] = [None]

        def look() -> None:
            before[0] = owner_of(self.home / "lock") or before[0]

        lock = wait_for(self.home / "lock", lease=self._lease, give_up=give_up, meanwhile=look)
        self.stop()
        if lock is None:
            return None
        return TakenOver(lock, before[0], {p.flow: _closed_at(self.home, p.flow) for p in self._plans})

    @property
    def followed(self) -> int:
        """The number of epochs that were run alongside the owner."""
        return sum(s.performed for s in self._shadows)

    def stop(self) -> None:
        """Stop following, after the current epochs."""
        for shadow in self._shadows:
            shadow.stop()

    def close(self) -> None:
        """Stop following and remove what was written."""
        self.stop()
        for shadow in self._shadows:
            shadow.join()
        _removed(self._folder, self.home)


class Shadow:
    """Reruns the epochs of another process's flow in a separate thread, and commits nothing."""

    def __init__(self, home: Path, plan: Plan, folder: Path, engines: EngineFactory) -> None:
        self.performed = 0
        self.error: BaseException | None = None
        self._home, self._plan, self._folder, self._engines = home, plan, folder, engines
        self._root = paths.flow_folder(home, plan.flow)
        self._tables = Tables(home / "tables")
        self._ports = {s.name: _port(home, plan.flow, s) for s in plan.sources}
        self._engine: EnginePort | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, name=f"millstream-shadow-{plan.flow}", daemon=True)

    @property
    def can_follow(self) -> bool:
        """Whether all its sources can be read alongside the owner."""
        return self._engine is not None and all(p is not None for p in self._ports.values())

    def warm(self) -> None:
        """Start what the engine needs and bind the plan."""
        self._engines.warm_up(self._plan).result()
        newest = self._tables.newest()
        if any(name not in newest for name in self._plan.tables):
            return  # its owner has not created them yet
        tables = {name: self._tables.path(name, newest[name]) for name in self._plan.tables}
        ports = {n: p for n, p in self._ports.items() if p is not None}
        self._engine = self._engines.build(
            self._plan,
            ports,
            FlowState.in_folder(self._folder),
            tables=tables,
            placement="auto",
            shards=None,
            retract=False,
        )

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current epoch."""
        self._stop.set()

    def join(self) -> None:
        """Wait until it has ended."""
        self._stop.set()
        self._thread.join()

    def _main(self) -> None:
        assert self._engine is not None
        compactor = Compactor(self._engine.cache, self._engine.plan.stateful)
        try:
            self._follow(self._engine, compactor)
        except (MillstreamError, OSError) as error:  # the owner keeps running; this one is only less warm
            self.error = error
        finally:
            compactor.close()
            _removed(self._folder, self._home)

    def _follow(self, engine: EnginePort, compactor: Compactor) -> None:
        while not (self._root / "epochs").is_dir():
            if self._stop.wait(POLL_SECONDS):
                return
        book, upkeep, version = RecordBook(self._root / "epochs"), Upkeep(engine.cache.storage), Version()
        last = max(0, book.newest() - 1)
        while not self._stop.wait(POLL_SECONDS):
            record = book.read(last + 1)
            if record is None and book.newest() > last + 1:
                last = book.newest() - 1  # lagging too far: the records in between are gone
            while record is not None and record.state == "closed" and not self._stop.is_set():
                if record.replay is None and set(record.slices) == set(self._ports):
                    before = version
                    output = engine.run(version, self._input(record))
                    low = min(record.watermarks.values(), default=BEGINNING)
                    version = compactor.between(output.version, record.epoch, low)
                    engine.cache.forget(upkeep.after(record.epoch, (before, output.version), version))
                    self.performed += 1
                last = record.epoch
                record = book.read(last + 1)

    def _input(self, record: EpochRecord) -> EpochInput:
        for port in self._ports.values():
            if port is not None:
                port.head(record.now)  # it reads what its owner has discovered since
        return input_of(record, self._tables)


def _port(home: Path, flow: str, source: PlannedSource) -> SourcePort | None:
    """Return a source that can be read next to its owner; None when it cannot."""
    root, log = paths.flow_folder(home, flow), Log(home / "log", SystemClock())
    return follow_source(SourceContext(source.connector, source.schema, flow, source.name, root, {}, log, holds=False))


def _removed(folder: Path, home: Path) -> None:
    """Remove what a standby has written; what cannot be removed is left for the next one."""
    with suppress(OSError):
        paths.delete_tree(folder, within=home)


def _closed_at(home: Path, flow: str) -> float:
    """When the last epoch of a flow was closed; the current time if there is none."""
    for path in sorted((paths.flow_folder(home, flow) / "epochs").glob("*.json"), reverse=True)[:2]:
        if b'"state":"closed"' in path.read_bytes():
            return path.stat().st_mtime
    return time.time()
