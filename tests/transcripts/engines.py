"""Scripts for stories: the local engine with a store in memory, or with the real one in a home made in advance.

A story lasts some ten milliseconds, so what surrounds it counts: the connection that computes expressions is shared
(it keeps nothing), no socket is opened for other processes, and a home is copied from an empty one.
"""

from __future__ import annotations

import atexit
import functools
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir, mkdtemp
from typing import Any, ClassVar
from unittest.mock import patch

import duckdb
import orjson
import polars as pl
import pyarrow as pa

from millstream.engine.binding.bind import bind_views
from millstream.home import Home
from millstream.model.flow import Flow
from millstream.plan.plan import Plan, PlannedSource, Scan
from millstream.plan.planner import plan
from millstream.state.flow_state import FlowState
from millstream.store.port import EpochCommit, EpochRow, ViewSpec
from millstream.testing.script import Script
from tests import local
from tests.local import LocalEngine, LocalScript
from tests.transcripts.story import VIEW

LATE = ["epoch", "event_time", "reason", "record"]
_SHARED = Path("/dev/shm")


@contextmanager
def short_lived() -> Iterator[Path]:
    """A folder in memory where there is one: nothing of a story outlives the machine."""
    with TemporaryDirectory(prefix="story-", dir=_SHARED if _SHARED.is_dir() else gettempdir()) as folder:
        yield Path(folder)


@functools.cache
def _expressions() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(local._MACROS)
    return connection


_plan = functools.cache(plan)
local._duck = functools.cache(local._duck)  # parsing the same expressions again and again takes longer than a story


class _Engine(LocalEngine):
    """The local engine; a plan that was bound once stays so (`_plan` keeps it alive)."""

    _bound: ClassVar[dict[int, Plan]] = {}
    _computed: ClassVar[dict[tuple[object, ...], pl.DataFrame]] = {}

    def __init__(self, plan: Plan, ports: Any, state: FlowState, *, shards: int) -> None:
        self.place(ports, state, shards)
        self.duck = _expressions()
        if id(plan) not in self._bound:
            types = {s.id: self._types(plan.source(s.source), s) for s in plan.scans}
            self._bound[id(plan)] = bind_views(None, plan, types, retract=True)  # type: ignore[arg-type]
        self.plan = self._bound[id(plan)]

    def columns(self, source: PlannedSource, scan: Scan, table: pa.Table, now: int = 0) -> pl.DataFrame:
        """The same rows come in every way in which a story is played."""
        place = (id(source.schema), scan.id, str(table.to_pydict()))
        if place not in self._computed:
            self._computed[place] = super().columns(source, scan, table, now)
        return self._computed[place]


class MemoryStore:
    """A store that lives as long as a script: it survives crashes, as a file would."""

    def __init__(self) -> None:
        self.token = 0
        self.rows: list[EpochRow] = []
        self.identity: tuple[str, ...] = ()
        self.view: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.panes: list[dict[str, Any]] = []
        self.late: list[dict[str, Any]] = []

    def prepare(self, flow: str, views: Sequence[ViewSpec], sources: Sequence[str]) -> None:
        (view,) = views
        assert view.identity is not None
        self.identity = view.identity

    def take_lease(self, flow: str, owner: str) -> int:
        self.token += 1
        return self.token

    def last(self, flow: str) -> EpochRow | None:
        return self.rows[-1] if self.rows else None

    def epochs(self, flow: str, most: int) -> list[EpochRow]:
        return self.rows[-most:][::-1]

    def generation(self, flow: str, sink: str = "") -> int:
        return 0

    def raise_generation(self, flow: str, sink: str, least: int) -> None:
        raise AssertionError("there are no sinks")

    def members(self, flow: str) -> set[str]:
        return set()

    def commit(self, commit: EpochCommit) -> None:
        assert commit.token == self.token
        assert commit.row.number == len(self.rows) + 1
        view = dict(self.view)
        ops: list[tuple[str, dict[str, Any]]] = []
        for table in commit.changes.values():
            rows = table.to_pylist()
            ops = [(r.pop("$op"), {k: v for k, v in r.items() if not k.startswith("$")}) for r in rows]
        for place in {self._place(row) for op, row in ops if op != "+I"}:
            del view[place]
        for op, row in ops:
            if op in ("+I", "+U"):
                assert self._place(row) not in view, f"a row that is there already: {op} {row}"
                view[self._place(row)] = row
        self.view = view
        self.panes += [r for t in commit.panes.values() for r in plain_panes(t)]
        self.late += [r for t in commit.late.values() for r in t.select(LATE).to_pylist()]
        row = commit.row
        again = (orjson.loads(orjson.dumps(x, option=orjson.OPT_NON_STR_KEYS)) for x in vars(row).values())
        self.rows.append(EpochRow(*again))

    def _place(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[c] for c in self.identity)

    def close(self) -> None:
        pass


def plain_panes(table: pa.Table) -> list[dict[str, Any]]:
    """Panes with their watermark in microseconds: that of the beginning is not a date."""
    at = table.schema.get_field_index("watermark")
    return table.set_column(at, "watermark", table["watermark"].cast(pa.int64())).to_pylist()


class _StoryScript(LocalScript):
    """A script on the local engine, whose home no other process may ask."""

    def __init__(self, flow: Flow, path: Path, *, shards: int = 1) -> None:
        with patch("millstream.testing.script.plan", _plan):
            super().__init__(flow, path, shards=shards)

    def _loop_of(self, home: Home) -> Any:
        home.open_home.on_store_open = lambda: None

        def make(plan: Any, ports: Any, state: FlowState) -> Any:
            return _Engine(plan, ports, state, shards=self.shards)

        return home.loop(self._plan, failpoint=self._failpoint, engine=make)


class MemoryScript(_StoryScript):
    """With a store in memory; state and records of epochs are files, as always."""

    def __init__(self, flow: Flow, path: Path, *, shards: int = 1) -> None:
        self.store = MemoryStore()
        super().__init__(flow, path, shards=shards)

    def _loop_of(self, home: Home) -> Any:
        home.open_home._store = self.store  # type: ignore[assignment]
        return super()._loop_of(home)

    def panes(self) -> list[dict[str, Any]]:
        return self.store.panes

    def late(self) -> list[dict[str, Any]]:
        return self.store.late

    def view(self) -> list[dict[str, Any]]:
        return list(self.store.view.values())


class _Tables:
    """Looks at the tables of a script with a real store."""

    home: Home

    def panes(self) -> list[dict[str, Any]]:
        return plain_panes(self.home.store.query(f'SELECT * FROM "{VIEW}$panes" ORDER BY epoch'))

    def late(self) -> list[dict[str, Any]]:
        return self.home.store.query(f'SELECT {", ".join(LATE)} FROM "{VIEW}$late" ORDER BY epoch').to_pylist()

    def view(self) -> list[dict[str, Any]]:
        return self.home.store.query(f'SELECT * FROM "{VIEW}"').to_pylist()


class StoreScript(_Tables, _StoryScript):
    """With the real store."""

    def __init__(self, flow: Flow, path: Path, *, shards: int = 1) -> None:
        shutil.copytree(_template(), path, dirs_exist_ok=True)
        super().__init__(flow, path, shards=shards)


class SparkScript(_Tables, Script):
    """A script on Spark."""


@functools.cache
def _template() -> Path:
    """An empty home, made once."""
    folder = Path(mkdtemp(prefix="story-", dir=_SHARED if _SHARED.is_dir() else gettempdir()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    home = Home(folder / "home")
    home.open_home.on_store_open = lambda: None
    assert home.store
    home.close()
    return folder / "home"
