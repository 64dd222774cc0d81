"""A home: one directory that holds log, state and store, and the flows that run in it.

home/
  millstream.json    format and version
  lock               held by the process that owns the home
  store.duckdb       the views
  flows/<flow>/      epochs/ state/ sources/
  tables/<table>/    versions of stored tables, for enrichment
  logs/spark.log     what Spark has to say
  query.sock         where other processes ask
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from millstream.clock import Clock, SystemClock
from millstream.connect.files import FileSource
from millstream.connect.generator import GeneratorSource
from millstream.connect.memory import MemorySource
from millstream.connect.port import Offsets, SourcePort
from millstream.errors import DefinitionError, DiskFull, HomeDamaged, HomeTooNew, UnknownName
from millstream.model.connector import Files, Generator
from millstream.model.flow import Flow
from millstream.model.stream import check_name
from millstream.plan.planner import plan
from millstream.plan.stages import Aggregation, Plan, SourceStage
from millstream.result import Result
from millstream.runtime.lease import HomeLock
from millstream.runtime.loop import EpochReport, FlowLoop
from millstream.runtime.port import EnginePort
from millstream.runtime.progress import Progress
from millstream.runtime.run import Run
from millstream.runtime.status import flow_rows, view_rows, watermark_rows
from millstream.runtime.tables import Tables
from millstream.sql.reading import translate
from millstream.state.run import write_durably
from millstream.store.port import ViewSpec

if TYPE_CHECKING:
    from millstream.store.duckdb import DuckStore

FORMAT = 1


class Home:
    """A directory with everything that flows keep. One process owns it at a time; others read through that one.

    Made by `millstream.open`; use it as a context manager.
    """

    def __init__(self, path: str | Path, *, clock: Clock | None = None, memory: str = "2g") -> None:
        self.path = Path(path).absolute()
        self.clock = clock or SystemClock()
        self.tables = Tables(self.path / "tables")
        self._memory = memory
        self._opening = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._store: DuckStore | None = None
        self._server: Any = None
        self._make()
        self._lock = HomeLock(self.path / "lock")
        try:
            check_format(self.path / "millstream.json")
        except BaseException:
            self._lock.release()
            raise

    @property
    def store(self) -> DuckStore:
        """The store, opened when it is first needed."""
        with self._opening:
            if self._store is None:
                from millstream.store.duckdb import DuckStore

                self._store = DuckStore(self.path / "store.duckdb", temp=self.path / "tmp")
                self._serve()  # from now on no other process can open the file
            return self._store

    @property
    def log(self) -> Path:
        """The file that Spark writes its messages to."""
        return self.path / "logs" / "spark.log"

    def start(
        self,
        flow: Flow,
        *,
        placement: str = "auto",
        shards: int | None = None,
        on_epoch: Callable[[EpochReport], None] | None = None,
    ) -> Run:
        """Start a flow in the background; it goes on where it was when it last ran here."""
        running = self._runs.get(flow.name)
        if running is not None and running.state not in ("stopped", "failed", "finished"):
            raise DefinitionError(f"the flow `{flow.name}` is running already", hint="stop it first: run.stop()")
        planned = plan(flow)
        make = lambda: self.loop(planned, placement=placement, shards=shards)  # noqa: E731
        self._runs[flow.name] = run = Run(flow.name, make, on_epoch=on_epoch)
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
        from millstream.engine.work import EpochInput, Replay

        root = self.path / "flows" / planned.flow
        last = self.store.last(planned.flow)
        progress = Progress.from_json(last.progress) if last is not None else Progress()
        ports = {s.name: self._port(root, s, progress.offsets.get(s.name, {})) for s in planned.sources}
        newest = self.tables.newest()
        for name in planned.tables:
            if name not in newest:
                raise UnknownName(
                    f"there is no stored table `{name}` in this home",
                    detail="there are: " + (", ".join(newest) or "none yet"),
                    hint=f"put one there first: home.put_table({name!r}, data)",
                )
        if engine is not None:
            chosen = engine(planned, ports, root / "state")
        else:
            tables = {name: self.tables.path(name, newest[name]) for name in planned.tables}
            chosen = self._engine(planned, ports, root, tables, placement, shards or os.cpu_count() or 2, retract)
        views = [
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
                not isinstance(v.stage, Aggregation) and v.stage.ordered,
            )
            for v in chosen.plan.views
        ]
        self.store.prepare(planned.flow, views, [s.name for s in planned.sources])
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
            make_input=EpochInput,
            make_replay=Replay,
            failpoint=failpoint,
        )

    def _engine(
        self,
        planned: Plan,
        ports: Mapping[str, SourcePort],
        root: Path,
        tables: Mapping[str, Path],
        placement: str,
        shards: int,
        retract: bool,
    ) -> EnginePort:
        from millstream.engine import session
        from millstream.engine.epoch import Engine
        from millstream.engine.placement import Placement

        return Engine(
            session.start(self.log, memory=self._memory),
            planned,
            ports,
            root / "state",
            tables=tables,
            placement=Placement(placement, shards),
            retract=retract,
            log=self.log,
        )

    def query(self, sql: str) -> Result:
        """Answer a SELECT (Spark SQL) over the views, as of one epoch."""
        return Result(self.store.query(translate(sql, self.store.tables())))

    def views(self) -> list[dict[str, Any]]:
        """The views with rows, last epoch, watermark, freshness, late and error counts."""
        return view_rows(self.store, self.clock.now())

    def flows(self) -> list[dict[str, Any]]:
        """The flows that have run here, and how far they have come."""
        return flow_rows(self.store, {n: r.state for n, r in self._runs.items()})

    def watermarks(self) -> list[dict[str, Any]]:
        """How far every partition of every source has come, and which one holds its flow back."""
        return watermark_rows(self.store, self.clock.now())

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

        A flow uses the newest version from its next epoch on, and says in the epoch's record which one it was.
        """
        check_name(name, "table")
        table = _arrow(data)
        self.store.put_table(name, table)  # refuses a name that is taken
        self.tables.put(name, table)

    def close(self) -> None:
        """Stop the flows and let go of the home."""
        for run in self._runs.values():
            run.stop()
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._store is not None:
            self._store.close()
            self._store = None
        self._lock.release()

    def __enter__(self) -> Home:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> None:
        """Answer other processes on this machine, over a socket in the home."""
        from millstream.serve.local import LocalServer

        self._server = LocalServer(self.path, self)

    def _port(self, root: Path, source: SourceStage, start: Offsets) -> SourcePort:
        if isinstance(source.connector, Files):
            return FileSource(source.connector, source.schema, root / "sources" / f"{source.name}.jsonl")
        if isinstance(source.connector, Generator):
            return GeneratorSource(source.connector, start.get(0, 0))
        return MemorySource(source.connector, source.schema)

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not (self.path / "millstream.json").exists():
                if any(p.name != "lock" for p in self.path.iterdir()):
                    raise HomeDamaged(
                        f"{self.path} is not empty and is not a Millstream home",
                        hint="name an empty or new directory, or one that Millstream has made",
                    )
                write_durably(self.path / "millstream.json", orjson.dumps({"format": FORMAT}))
        except (PermissionError, NotADirectoryError, FileExistsError) as error:
            raise HomeDamaged(f"{self.path} cannot be used as a home: {error.strerror}") from None
        except OSError as error:
            if error.errno == 28:
                raise DiskFull(f"no space left to make the home {self.path}") from None
            raise


def check_format(path: Path) -> None:
    """Refuse a home that is damaged or was written by a newer version, before anything in it is touched."""
    try:
        found = orjson.loads(path.read_bytes())["format"]
    except (ValueError, KeyError, TypeError):
        raise HomeDamaged(f"{path} cannot be read", hint="is this a Millstream home?") from None
    if found > FORMAT:
        raise HomeTooNew(
            f"the home {path.parent} has format {found}, and this Millstream knows formats up to {FORMAT}",
            detail="it was written by a newer version; nothing in it was touched",
            hint="upgrade: pip install --upgrade millstream",
        )


def _arrow(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if hasattr(data, "to_arrow"):
        return data.to_arrow()
    if isinstance(data, list):
        return pa.Table.from_pylist(data)
    return pa.Table.from_pandas(data, preserve_index=False)
