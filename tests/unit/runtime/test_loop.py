"""The loop of epochs over the real store and record book, with an engine of a few lines: every slice once, always."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.clock import ALL_READ, BEGINNING, ManualClock
from millstream.connect.memory import MemorySource
from millstream.connect.port import SourceSlice
from millstream.engine.driver.epoch_io import EpochInput
from millstream.errors import HomeDamaged, LeaseLost, MillstreamError, RecoveryFailed, RunError
from millstream.kernels.aggregates.combine import group_columns
from millstream.kernels.intake import Tally
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.plan import Plan
from millstream.plan.planner import plan
from millstream.runtime.epoch.loop import EpochReport, FlowLoop
from millstream.runtime.epoch.outbox import Outbox
from millstream.runtime.epoch.progress import Progress
from millstream.runtime.epoch.stored_tables import Tables
from millstream.runtime.supervision.run import STATES, Run
from millstream.state.shard import RunCache, StateReader
from millstream.state.version import Version
from millstream.store.duckdb import DuckStore
from millstream.store.port import EpochCommit, ViewSpec

STEPS = ("before open", "before work", "before commit", "after commit", "after close")
BASE = 1_767_225_600


class Crash(BaseException):
    """The process ends here."""


@dataclass
class Output:
    version: Version
    changes: dict[str, pa.Table]
    tallies: dict[str, Tally]
    applied: dict[str, int]
    filtered: dict[str, int] = field(default_factory=dict)
    errors: dict[str, pa.Table] = field(default_factory=dict)
    late: dict[str, pa.Table] = field(default_factory=dict)
    mended: dict[str, pa.Table] = field(default_factory=dict)
    panes: dict[str, pa.Table] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)
    hot: dict[str, dict[int, int]] = field(default_factory=dict)
    loads: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def changed(self) -> dict[str, int]:
        return {name: table.num_rows for name, table in self.changes.items()}

    @property
    def stored(self) -> dict[str, pa.Table]:
        return self.changes


class TinyEngine:
    """Adds up `price` over all of time: one state row, and the log of what it was given."""

    def __init__(self, planned: Plan, ports: Mapping[str, MemorySource], root: Path) -> None:
        self.plan, self.ports, self.cache = planned, ports, RunCache(root)
        self.merger = None
        self.inputs: list[EpochInput] = []

    def run(self, version: Version, epoch_input: EpochInput) -> Output:
        self.inputs.append(epoch_input)
        table = pa.concat_tables([self.ports[n].table(s) for n, s in epoch_input.slices.items()])
        prices = [p for p in table["price"].to_pylist() if p is not None]
        stage = self.plan.views[0].operator
        assert isinstance(stage, Aggregation)
        held = StateReader(self.cache, version.of("v"), group_columns(stage)).scan(BEGINNING)
        total = (0 if held is None else held["s$s"][0]) + sum(prices)
        rows = pl.DataFrame({"$h": [0], "$s": [0], "s$s": [total], "$n": [1]})
        run = self.cache.write(f"v/{epoch_input.number:012d}-{epoch_input.attempt}.arrow", rows, np.array([2**62]))
        self.cache.trust([run.file])
        newest = {0: max(t.timestamp() for t in table["ts"].to_pylist()) * 1_000_000} if table.num_rows else {}
        tally = Tally(table.num_rows, 0, 0, {p: round(t) for p, t in newest.items()})
        changes = pa.table({"$op": ["+I" if held is None else "+U"], "s": [total]})
        log = pa.table({"$op": ["+I"] * table.num_rows, "x": pa.array(table["price"].to_pylist(), pa.int64())})
        return Output(
            version.advance("v", [run], epoch_input.watermarks["bids"]),
            {"v": changes, "w": log},
            {"bids": tally},
            {"v": table.num_rows},
        )


class World:
    """A home that can be crashed and started again; the memory source plays the log that survives."""

    def __init__(self, root: Path) -> None:
        self.root = root
        flow = ms.Flow("f")
        self.memory = ms.memory()
        bids = flow.source(
            "bids", self.memory, schema="price BIGINT, ts TIMESTAMP", event_time="ts", lateness="1 second", max_rows=3
        )
        bids.aggregate(s=ms.sum("price")).view("v")
        bids.select(x="price").view("w")
        self.plan = plan(flow)
        self.clock = ManualClock(BASE * 1_000_000)
        self.crash_at: str | None = None
        self.tables = Tables(root / "tables")
        self.sent = 0
        self.start()

    def send(self, *prices: int) -> None:
        for price in prices:
            self.memory.send({"price": price, "ts": BASE + self.sent})
            self.sent += 1

    def start(self) -> None:
        self.store = DuckStore(self.root / "store.duckdb")
        try:
            specs = [
                ViewSpec("v", pa.schema([("s", pa.int64())]), ("s",), (), None, None, self.plan.views[0].fingerprint),
                ViewSpec("w", pa.schema([("x", pa.int64())]), ("x",), None, None, None, self.plan.views[1].fingerprint),
            ]
            self.store.prepare("f", specs, ["bids"])
            last = self.store.last("f")
            self.ports = {"bids": MemorySource(self.memory, self.plan.source("bids").schema)}
            self.engine = TinyEngine(self.plan, self.ports, self.root / "state")
            self.loop = FlowLoop(
                self.engine,
                self.ports,
                self.store,
                self.root,
                self.clock,
                self.store.take_lease("f", "me"),
                progress=Progress.from_json(last.progress) if last else Progress(),
                tables=self.tables,
                outbox=Outbox(self.plan, {}, self.root / "out", {}),
                failpoint=self._fail,
            )
        except MillstreamError:
            self.store.close()
            raise

    def stop(self) -> None:
        self.loop.close()
        self.store.close()

    def run(self) -> list[EpochReport]:
        """Epochs until there is nothing to do; a crash starts everything again from the disk."""
        reports = []
        while True:
            try:
                report = self.loop.step()
            except Crash:
                self.stop()
                self.start()
                continue
            if report is None:
                return reports
            reports.append(report)

    def _fail(self, step: str) -> None:
        if step == self.crash_at:
            self.crash_at = None
            raise Crash

    @property
    def total(self) -> int:
        return int(self.store.query("SELECT s FROM v")["s"][0].as_py())

    @property
    def log(self) -> list[int]:
        return sorted(self.store.query("SELECT x FROM w")["x"].to_pylist())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.stop()


def test_epochs_take_everything_once_in_slices_of_the_size_asked_for(world: World) -> None:
    world.send(*range(1, 8))
    reports = world.run()
    assert [r.rows for r in reports] == [3, 3, 1] and [r.number for r in reports] == [1, 2, 3]
    assert world.total == 28 and world.log == list(range(1, 8))
    assert world.loop.step() is None


def test_the_watermark_of_an_epoch_is_what_the_epochs_before_it_have_shown(world: World) -> None:
    world.send(*range(7))
    world.run()
    assert [g.watermarks["bids"] for g in world.engine.inputs] == [
        BEGINNING,
        (BASE + 1) * 1_000_000,
        (BASE + 4) * 1_000_000,
    ]
    assert [g.before["bids"] for g in world.engine.inputs] == [BEGINNING, BEGINNING, (BASE + 1) * 1_000_000]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("epoch", [1, 2])
def test_a_crash_at_any_step_of_an_epoch_loses_and_repeats_nothing(world: World, step: str, epoch: int) -> None:
    world.send(1, 2, 3)
    if epoch == 2:
        world.run()
        world.send(4, 5)
    world.crash_at = step
    world.run()
    assert world.crash_at is None
    world.send(100)
    world.run()
    expected = [1, 2, 3, 100] if epoch == 1 else [1, 2, 3, 4, 5, 100]
    assert world.log == expected and world.total == sum(expected)
    numbers = [r.number for r in world.store.epochs("f", 100)]
    assert numbers == list(range(len(numbers), 0, -1))


@pytest.mark.parametrize("step", ["before work", "before commit"])
def test_an_epoch_that_died_is_run_again_with_the_same_slice_and_clock(world: World, step: str) -> None:
    world.send(1, 2)
    world.crash_at = step
    with pytest.raises(Crash):
        world.loop.step()
    before = world.loop.book.read(1)
    world.stop()
    world.send(3)
    world.clock.advance(60_000_000)
    world.start()
    world.run()
    again = world.engine.inputs[0]
    assert before is not None and (again.slices, again.now, again.watermarks) == (
        before.slices,
        before.now,
        before.watermarks,
    )
    assert world.log == [1, 2, 3]


@settings(max_examples=8)
@given(st.lists(st.tuples(st.lists(st.integers(-9, 9), max_size=4), st.sampled_from([None, *STEPS])), max_size=6))
def test_any_story_of_sends_and_crashes_ends_in_the_same_views(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[list[int], str | None]]
) -> None:
    world = World(tmp_path_factory.mktemp("home"))
    for prices, crash in story:
        world.crash_at = crash
        world.send(*prices)
        world.run()
    sent = [p for prices, _ in story for p in prices]
    if sent:
        assert world.log == sorted(sent) and world.total == sum(sent)
    assert {
        str(p.relative_to(world.root / "state")) for p in (world.root / "state").glob("*/*")
    } >= world.loop.version.files
    world.stop()


def test_runs_of_an_epoch_that_died_are_removed_on_the_next_start(world: World) -> None:
    world.send(1)
    world.crash_at = "before commit"
    with pytest.raises(Crash):
        world.loop.step()
    world.stop()
    assert [p.name for p in (world.root / "state" / "v").iterdir()] == ["000000000001-1.arrow"]
    world.start()
    assert list((world.root / "state" / "v").iterdir()) == []


def test_files_of_state_do_not_pile_up_over_many_epochs(world: World) -> None:
    for n in range(40):
        world.send(n)
        world.run()
    assert len(list((world.root / "state" / "v").iterdir())) <= 12
    assert world.total == sum(range(40))


def test_a_restart_after_any_epoch_finds_every_file_that_the_store_names(world: World) -> None:
    """Compaction removes runs; those that the last committed version names must outlive it by an epoch."""
    for n in range(12):
        world.send(n)
        world.run()
        world.stop()
        world.start()
    for n in range(12, 24):
        world.send(n)
        world.run()
        last = world.store.last("f")
        assert last is not None
        assert all((world.root / "state" / f).exists() for f in Version.from_json(last.version).files)
    assert world.total == sum(range(24))


def test_a_store_older_than_the_records_is_refused(world: World) -> None:
    world.send(1)
    world.run()
    world.stop()
    copy = (world.root / "store.duckdb").read_bytes()
    world.start()
    for n in (2, 3):
        world.send(n)
        world.run()
    world.stop()
    (world.root / "store.duckdb").write_bytes(copy)
    with pytest.raises(RecoveryFailed, match="up to epoch 1, but there are records up to 3"):
        world.start()
    (world.root / "epochs" / f"{3:012d}.json").unlink()
    (world.root / "epochs" / f"{2:012d}.json").unlink()


def test_a_record_with_another_slice_than_the_store_is_refused(world: World) -> None:
    world.send(1, 2)
    world.run()
    record = world.loop.book.read(1)
    assert record is not None
    world.loop.book.open(replace(record, slices={"bids": SourceSlice({0: (0, 1)})}))
    world.stop()
    with pytest.raises(RecoveryFailed, match="one slice in the store and another in its record"):
        world.start()
    world.loop.book.open(record)
    world.start()


def test_a_missing_state_file_is_named(world: World) -> None:
    world.send(1)
    world.run()
    world.stop()
    (file,) = (world.root / "state" / "v").iterdir()
    kept = file.read_bytes()
    file.unlink()
    with pytest.raises(HomeDamaged, match=f"{file.name} is missing"):
        world.start()
    file.write_bytes(kept)
    world.start()


def test_a_garbled_record_of_the_open_epoch_is_named(world: World) -> None:
    world.send(1)
    world.run()
    path = world.root / "epochs" / f"{2:012d}.json"
    path.write_text("{")
    with pytest.raises(HomeDamaged, match=r"000000000002\.json"):
        world.loop.step()
    path.unlink()


def test_a_frozen_loop_that_was_taken_over_writes_nothing(world: World) -> None:
    world.send(1)
    world.run()
    world.store.take_lease("f", "another")
    world.send(2)
    with pytest.raises(LeaseLost):
        world.loop.step()
    assert world.log == [1]


def test_an_epoch_that_is_run_again_sees_the_same_version_of_a_stored_table(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.plan = replace(world.plan, tables=("names",))
    world.stop()
    world.tables.put("names", pa.table({"x": [1]}), lambda _: None)
    world.start()
    world.send(1)
    world.crash_at = "before commit"
    with pytest.raises(Crash):
        world.loop.step()
    world.stop()
    world.tables.put("names", pa.table({"x": [2]}), lambda _: None)
    world.start()
    world.run()
    world.stop()
    assert world.engine.inputs[0].tables == {"names": world.tables.path("names", 1)}


class Ending(MemorySource):
    """A memory source that is bounded."""

    def finished(self, start: Mapping[int, int]) -> bool:
        return start.get(0, 0) >= len(self._memory.rows[0])


def test_a_flow_is_finished_when_its_sources_are_and_the_last_windows_have_closed(world: World) -> None:
    world.send(1, 2)
    world.ports["bids"] = Ending(world.memory, world.plan.source("bids").schema)
    assert not world.loop.finished
    world.run()
    assert world.loop.finished and world.loop.progress.reached == {"bids": ALL_READ}


def test_counts_and_progress_are_committed_with_the_epoch(world: World) -> None:
    world.send(1, 2)
    world.run()
    row = world.store.last("f")
    assert row is not None
    assert (
        row.progress["rows"] == {"bids": 2}
        and row.progress["applied"] == {"v": 2}
        and row.progress["changed"] == {"v": 1, "w": 1}
    )
    assert row.progress["offsets"] == {"bids": {"0": 2}} and row.slices == {"bids": {"0": [0, 2]}}


def test_a_commit_that_fails_leaves_the_loop_where_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.send(1, 2)
    commit = world.store.commit

    def fail(_: EpochCommit) -> None:
        raise HomeDamaged("the store failed")

    monkeypatch.setattr(world.store, "commit", fail)
    with pytest.raises(HomeDamaged):
        world.loop.step()
    monkeypatch.setattr(world.store, "commit", commit)
    world.run()
    assert world.log == [1, 2] and world.total == 3


class Looping:
    """A loop as `Run` sees it: a list of things that happen."""

    def __init__(self, *happens: object) -> None:
        self.happens = list(happens)
        self.closed = False

    finished = False

    def step(self) -> object:
        if not self.happens:
            self.finished = True
            return None
        event = self.happens.pop(0)
        if isinstance(event, Exception):
            raise event
        return event

    def close(self) -> None:
        self.closed = True


def report(number: int) -> EpochReport:
    return EpochReport(number, 1, 0.1, {}, 0, 0, 0, 0, output="rows")


def test_a_run_reports_its_epochs_and_finishes() -> None:
    seen: list[int] = []
    loop = Looping(report(1), None, report(2))
    with Run("f", lambda: loop, on_epoch=lambda r: seen.append(r.number)) as run:  # type: ignore[arg-type, return-value]
        run.wait(timeout=30)
        assert run.state == "finished" and seen == [1, 2] and loop.closed
        assert [r.output for r in run.reports] == [None, None]
        assert run.catch_up(timeout=30) is run


@pytest.mark.parametrize(("error", "kind"), [(LeaseLost("gone"), LeaseLost), (ZeroDivisionError("oops"), RunError)])
def test_a_run_that_fails_raises_what_stopped_it(error: Exception, kind: type[Exception]) -> None:
    loop = Looping(report(1), error)
    run = Run("f", lambda: loop)  # type: ignore[arg-type, return-value]
    with pytest.raises(kind):
        run.wait(timeout=30)
    assert run.state == "failed" and loop.closed
    run.stop()
    assert run.error is error or run.error.__cause__ is error  # type: ignore[union-attr]


def test_a_run_that_cannot_be_made_fails_with_the_reason() -> None:
    def make() -> FlowLoop:
        raise HomeDamaged("no home")

    with pytest.raises(HomeDamaged, match="no home"):
        Run("f", make).wait(timeout=30)


def test_a_stopped_run_stays_stopped() -> None:
    loop = Looping(*[None] * 10_000)
    run = Run("f", lambda: loop)  # type: ignore[arg-type, return-value]
    run.stop()
    assert run.state == "stopped" and loop.closed
    with pytest.raises(TimeoutError):
        Run("g", lambda: Looping(*[None] * 10_000)).wait(lambda r: False, timeout=0)  # type: ignore[arg-type, return-value]


def test_every_state_of_a_run_leads_somewhere_known() -> None:
    assert {s for to in STATES.values() for s in to} <= set(STATES)
