"""What the driver itself does per epoch, for 10, 100 and 1,000 shards and 20 operators, with simulated task outcomes.

The tasks of an epoch are simulated: what they would send to the driver is made up before the clock starts, and their
files are empty. All the rest is real: the epoch record, packing the tasks, opening the outcomes, the version, the
store's commit, and the removal of files that no kept version names (the search for orphans included: every epoch
searches one of the twenty steps). Windows close as the watermark moves, so every state keeps the runs of the last
epochs and drops older ones. Compaction is left out: its work is not the driver's own.

Every outcome has one run per operator and shard, the counts of one scan task per shard, and ten changed rows per shard
of one view.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pyarrow as pa
from pyspark import cloudpickle

import millstream as ms
from bench.own import feed
from millstream.engine.driver.driver import EpochDriver
from millstream.engine.driver.epoch_io import EpochInput, EpochOutput
from millstream.engine.exchange.parcels import COUNTS, FINAL, RUNS, Sender
from millstream.engine.exchange.results import opened
from millstream.engine.exchange.routes import Routes
from millstream.engine.tasks.level_task import LevelTask, TaskReport
from millstream.kernels.intake import Tally
from millstream.plan.planner import plan
from millstream.runtime.epoch.loop import FlowLoop
from millstream.state.run import Batch, StateRun
from millstream.state.shard import shard_range
from millstream.state.version import Version

SHARDS = (10, 100, 1_000)
OPERATORS = 20
KEPT_EPOCHS = 6
"""How many epochs a run stays in a state, as if compaction left so many runs per shard."""
EPOCHS, WARM_UP_EPOCHS = 20, 12
CHANGED_ROWS = 10
MINUTE = 60_000_000
START = datetime.fromtimestamp(feed.START / 1e6, UTC)


def measure(work: Path, events: int | None) -> dict[str, Any]:
    """`events` is the greatest number of shards."""
    figures: dict[str, Any] = {"operators": OPERATORS, "runs_per_shard_and_operator": KEPT_EPOCHS}
    for shards in SHARDS:
        if events is None or shards <= events:
            figures |= _measured(work / str(shards), shards)
    return figures


def _measured(work: Path, shards: int) -> dict[str, Any]:
    flow, source = ms.Flow("cost"), ms.memory()
    rows = flow.source("rows", source, schema="key BIGINT, value BIGINT, at TIMESTAMP", event_time="at", lateness="0 s")
    for i in range(OPERATORS):
        rows.key_by("key").window(ms.tumbling("1 minute")).aggregate(n=ms.count(), total=ms.sum("value")).view(f"v{i}")
    spent: list[dict[str, float]] = []
    with ms.open(str(work / "home")) as home:
        loop = home.loop(plan(flow), placement="inline")
        simulated = _SimulatedTasks(loop, shards)
        for epoch in range(EPOCHS):
            source.send({"key": 1, "value": 1, "at": START + timedelta(minutes=epoch)})
            simulated.prepare(loop.number + 1, epoch)
            spent.append(simulated.timed_step())
        version = loop.version
        loop.close()
    runs = sum(len(version.of(step)) for step in version.runs)
    assert runs == KEPT_EPOCHS * OPERATORS * shards, f"{runs:,} runs"
    shutil.rmtree(work, ignore_errors=True)
    steady = spent[WARM_UP_EPOCHS:]
    middle = sorted(steady, key=lambda s: s["whole"])[len(steady) // 2]
    goal = {"goal": 500.0} if shards == SHARDS[-1] else {}
    return {
        f"{shards}_shards_ms": {"value": 1e3 * middle["whole"], **goal, "all": [1e3 * s["whole"] for s in steady]},
        f"{shards}_shards_cpu_ms": 1e3 * sorted(s["cpu"] for s in steady)[len(steady) // 2],
        f"{shards}_shards_parts_ms": str({k: round(1e3 * v) for k, v in middle.items() if k not in ("whole", "cpu")}),
    }


class _SimulatedTasks:
    """Stands in for the Spark job of an epoch: its outcomes are prepared, and the driver receives them."""

    def __init__(self, loop: FlowLoop, shards: int) -> None:
        self._loop, self._shards = loop, shards
        self._engine: Any = loop.engine
        self._root = Path(self._engine.cache.storage.place())
        self._steps = [v.operator.state_step(s) for v in loop.plan.views for s in v.operator.states]
        self._parcels: list[pa.RecordBatch] = []
        self._seconds: dict[str, float] = {}
        self._engine.run = self._run
        loop._compactor = _NoCompaction()  # type: ignore[assignment]
        for step in self._steps:
            (self._root / step).mkdir(parents=True, exist_ok=True)

    def prepare(self, number: int, epoch: int) -> None:
        """Make up what the tasks of an epoch send, and create their files."""
        self._parcels = []
        watermark = feed.START + epoch * MINUTE
        expiry = watermark + (KEPT_EPOCHS - 1) * MINUTE  # the watermark lags by one epoch
        changes = self._changes(epoch)
        for shard in range(self._shards):
            sender = Sender((1 << 20) + shard, shard)
            hashes = shard_range(shard, self._shards)
            report = TaskReport()
            for view, step in enumerate(self._steps):
                name = f"{step}/{number:012d}-{self._loop.token}-{shard}-0.arrow"
                (self._root / name).touch()
                report.runs.append(StateRun(name, 2774893043, 40_312, (Batch(1_000, expiry, expiry),), hashes))
                report.views.append(view)
                report.rows[view] = 10_000
            sent = [sender.data(RUNS, -1, report.encoded())]
            sent += sender.rows(FINAL, 0, changes.with_columns(pl.lit(shard).cast(pl.Int64).alias("key")))
            tally = Tally(10_000, newest={0: watermark})
            counts = {
                "tally": asdict(tally),
                "late": {},
                "applied": dict.fromkeys(range(OPERATORS), 10_000),
                "filtered": {},
                "partials": 1_000,
            }
            sent.append(Sender(shard).data(COUNTS, 0, orjson.dumps(counts, option=orjson.OPT_NON_STR_KEYS)))
            self._parcels += pa.Table.from_batches(sent).combine_chunks().to_batches()  # as Spark delivers a partition

    def _changes(self, epoch: int) -> pl.DataFrame:
        start = START + timedelta(minutes=epoch)
        times = [start + timedelta(seconds=6 * i) for i in range(CHANGED_ROWS)]
        view = self._loop.plan.views[0]
        values: dict[str, Any] = {"$op": "+I", "key": 0, "window_end": start + timedelta(minutes=1), "n": 1, "total": 1}
        frame = pl.DataFrame({"window_start": times}, schema={"window_start": pl.Datetime("us", "UTC")})
        frame = frame.with_columns(pl.lit(v).alias(k) for k, v in values.items())
        assert view.results is not None
        kinds = {f.name: f.type for f in view.results}
        typed = {n: pl.from_arrow(pa.nulls(0, t)).dtype for n, t in kinds.items()}  # type: ignore[union-attr]
        return frame.cast({n: t for n, t in typed.items() if n in frame.columns})  # type: ignore[arg-type]

    def timed_step(self) -> dict[str, float]:
        """Perform the epoch; the seconds of its parts."""
        self._seconds = {}
        cpu = time.process_time()
        with self._part("whole"):
            report = self._loop.step()
        self._seconds["cpu"] = time.process_time() - cpu
        assert report is not None and report.rows == 10_000 * self._shards
        return self._seconds

    def _run(self, version: Version, epoch_input: EpochInput) -> EpochOutput:
        engine = self._engine
        with self._part("tasks"):
            driver = EpochDriver(engine.plan, engine.cache, version, epoch_input, None, engine.state.answers)  # type: ignore[arg-type]
            routes = Routes(engine.graph, self._shards, frozenset(), engine.state.changes)
            args = (engine.cache.storage, epoch_input.number, epoch_input.attempt, version.only(engine.graph.steps(1)))
            assert cloudpickle.dumps(LevelTask(1, routes, *args, driver.clocks))
        with self._part("open outcomes"):
            results = opened(self._parcels, engine.state.changes)
        with self._part("version"):
            for scan in engine.plan.scans:
                driver.add_intake(scan, results.intakes[scan.id])
            driver.received(engine.graph, results, self._shards)
            driver.operators()
        return driver.out

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._seconds[name] = time.perf_counter() - start


class _NoCompaction:
    """Leaves the runs as they are."""

    merging = frozenset[str]()

    def between(self, version: Version, epoch: int, watermark: int) -> Version:
        del epoch, watermark
        return version

    def close(self) -> None:
        """Nothing runs."""
