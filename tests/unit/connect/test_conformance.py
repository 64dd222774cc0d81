"""Every connector that comes with Millstream passes the suites, and the suites notice connectors that do not."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream as ms
from millstream.clock import SystemClock
from millstream.connect.files.source import FileSource
from millstream.connect.forms import ArrowRows, Form
from millstream.connect.generator import GeneratorSource
from millstream.connect.log import LogSource
from millstream.connect.memory import MemorySource
from millstream.connect.port import Offsets, SinkBase, SinkPort, SourceBase, SourceFacts, SourcePort, SourceSlice
from millstream.connect.sinks import ConsoleSink, FilesSink, TopicSink
from millstream.log.log import Log
from millstream.model.connectors import Files, LogTopic, Memory, TableTarget
from millstream.model.guarantees import SinkGuarantee
from millstream.model.types.schema import Schema
from millstream.runtime.epoch.table_sink import Change, TableAccess, TableSink, changed
from millstream.state.durable import write_durably
from millstream.store.duckdb import DuckStore
from millstream.testing.conformance import sinks
from millstream.testing.conformance.sinks import SinkConformance
from millstream.testing.conformance.sources import SourceConformance

SCHEMA = Schema.parse("n BIGINT")


class _FilesSuite(SourceConformance):
    format: ClassVar[str]
    system = "files"
    options: ClassVar[dict[str, Any]] = {"path": "data", "format": "json"}
    bad_options: ClassVar[list[dict[str, Any]]] = [{"header": "yes"}, {"bounded": 1}, {"path": False}]

    def open(self, folder: Path, at: Offsets) -> SourcePort:
        (folder / "data").mkdir(exist_ok=True)
        return FileSource(Files(str(folder / "data"), self.format), SCHEMA, folder / "ledger.jsonl")

    def feed(self, folder: Path, first: int, count: int) -> None:
        (folder / "data").mkdir(exist_ok=True)
        size = max(1, count // 3)  # a few files
        for start in range(first, first + count, size):
            numbers = range(start, min(start + size, first + count))
            path = folder / f"{start:08d}.part"
            self.write(path, numbers)
            path.rename(folder / "data" / f"{start:08d}.{self.format}")

    def write(self, path: Path, numbers: range) -> None:
        raise NotImplementedError


class TestJsonFiles(_FilesSuite):
    format = "json"

    def write(self, path: Path, numbers: range) -> None:
        path.write_text("".join(f'{{"n": {n}}}\n' for n in numbers))


class TestCsvFiles(_FilesSuite):
    format = "csv"

    def write(self, path: Path, numbers: range) -> None:
        path.write_text("n\n" + "".join(f"{n}\n" for n in numbers))


class TestParquetFiles(_FilesSuite):
    format = "parquet"

    def write(self, path: Path, numbers: range) -> None:
        pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), path)


class TestTopic(SourceConformance):
    system = "log"
    options: ClassVar[dict[str, Any]] = {"topic": "t", "retain": "1 hour"}
    bad_options: ClassVar[list[dict[str, Any]]] = [{"partitions": "3"}, {"retain": 5}]
    partitions = 1

    @pytest.fixture(autouse=True)
    def opened_log(self, tmp_path: Path) -> Any:
        self.log = Log(tmp_path / "log", SystemClock())
        self.topic = self.log.create("t", SCHEMA.to_arrow(), partitions=self.partitions)
        yield
        self.log.close()

    def feed(self, folder: Path, first: int, count: int) -> None:
        if count:
            self.topic.append(pa.table({"n": pa.array(range(first, first + count), pa.int64())}))
            self.topic.roll()  # sealed segments and a tail

    def open(self, folder: Path, at: Offsets) -> SourcePort:
        return LogSource(self.topic, LogTopic("t"), SCHEMA, "f.s", at)


class TestTopicWithPartitions(TestTopic):
    partitions = 3


class TestMemory(SourceConformance):
    system = "memory"

    @pytest.fixture(autouse=True)
    def sent_rows(self) -> None:
        self.memory = Memory(2)

    def feed(self, folder: Path, first: int, count: int) -> None:
        for n in range(first, first + count):
            self.memory.send({"n": n}, partition=n % 2)

    def open(self, folder: Path, at: Offsets) -> SourcePort:
        return MemorySource(self.memory, SCHEMA)


def make(start: int, end: int) -> pa.Table:
    return pa.table({"n": pa.array(range(start, end), pa.int64())})


class TestGenerator(SourceConformance):
    system = "generator"
    grows = False
    large = 120_000
    total = 0

    def feed(self, folder: Path, first: int, count: int) -> None:
        self.total = first + count

    def open(self, folder: Path, at: Offsets) -> SourcePort:
        return GeneratorSource(ms.generator(make, events=self.total), at.get(0, 0))


# ---------------------------------------------------------------- sinks


class TestFilesSink(SinkConformance):
    system = "files"
    options: ClassVar[dict[str, Any]] = {"path": "out", "format": "json"}
    bad_options: ClassVar[list[dict[str, Any]]] = [{"path": 1}, {"format": True}]

    def open(self, folder: Path, generation: int) -> SinkPort:
        return FilesSink(folder / "out", "json", "s", generation, write_durably)

    def read(self, folder: Path) -> list[dict[str, Any]]:
        files = sorted((folder / "out").glob("*.json"))
        return [json.loads(line) for f in files for line in f.read_text().splitlines()]


class TestTopicSink(SinkConformance):
    system = "log"
    partitions = 1

    @pytest.fixture(autouse=True)
    def opened_log(self, tmp_path: Path) -> Any:
        self.log = Log(tmp_path / "log", SystemClock())
        self.topic = self.log.create("t", sinks.SCHEMA, partitions=self.partitions, key="item")
        yield
        self.log.close()

    def open(self, folder: Path, generation: int) -> SinkPort:
        return TopicSink("s", self.topic, self.writer(generation))

    def read(self, folder: Path) -> list[dict[str, Any]]:
        return [r for p, end in self.topic.end().items() for r in self.topic.read(p, 0, end).to_pylist()]


class TestTopicSinkWithPartitions(TestTopicSink):
    partitions = 3
    exact = False


class TestConsoleSink(SinkConformance):
    system = "console"

    @pytest.fixture(autouse=True)
    def screen(self) -> None:
        self.out = io.StringIO()

    def open(self, folder: Path, generation: int) -> SinkPort:
        return ConsoleSink("s", "op", self.out)

    def read(self, folder: Path) -> list[dict[str, Any]]:
        return [json.loads(line.partition("+I ")[2]) for line in self.out.getvalue().splitlines()]


class TestTableSink(SinkConformance):
    system = "table"
    key: ClassVar[tuple[str, ...]] = ("item",)
    large = 5_000

    @pytest.fixture(autouse=True)
    def opened_store(self, tmp_path: Path) -> Any:
        self.store = DuckStore(tmp_path / "store.duckdb")
        self.version = 0
        self.schema = Schema.parse("item STRING, n BIGINT")
        self.store.put_table("t", self.schema.to_arrow().empty_table())
        yield
        self.store.close()

    def change(self, name: str, writer: str, epoch: int, change: Change) -> None:
        new = changed(self.store, name, writer, epoch, change)
        if new is not None:
            self.version += 1
            self.store.put_table(name, new[0], self.version, new[1])

    def open(self, folder: Path, generation: int) -> SinkPort:
        target = TableTarget("t", ("item", "n"), self.key, (), self.schema)
        tables = TableAccess(self.change, self.store)
        return TableSink("s", target, "op", tables, self.writer(generation))

    def read(self, folder: Path) -> list[dict[str, Any]]:
        return self.store.table_rows("t").to_pylist()


class TestTableSinkThatAppends(TestTableSink):
    key = ()


# ---------------------------------------------------------------- what the suites notice


class _Rows(SourceBase):
    """A source over rows of a list, to be broken."""

    def __init__(self, rows: list[int]) -> None:
        self.seen = rows

    def head(self, now: int) -> Offsets:
        return {0: len(self.seen)}

    def slice(self, part: SourceSlice) -> Sequence[Form]:
        start, end = part.ranges.get(0, (0, 0))
        numbers = self.seen[start:end]
        places = {"$part": pa.array([0] * len(numbers), pa.int32()), "$pos": pa.array(range(start, end), pa.int64())}
        return [ArrowRows(pa.table({"n": pa.array(numbers, pa.int64()), **places}))]

    def describe(self) -> SourceFacts:
        return SourceFacts("memory", record_per_offset=True)

    def pending(self, at: Offsets, now: int) -> int | None:
        return len(self.seen) - at.get(0, 0)


class _Sound(SourceConformance):
    kind: type[_Rows] = _Rows

    def __init__(self) -> None:
        self.sent: list[int] = []

    def feed(self, folder: Path, first: int, count: int) -> None:
        self.sent += range(first, first + count)

    def open(self, folder: Path, at: Offsets) -> SourcePort:
        return self.kind(self.sent)


class _Skips(_Rows):
    def admit(self, start: Offsets, head: Offsets, limit: int | None) -> SourceSlice:
        part = super().admit(start, head, limit)
        return SourceSlice({p: (min(s + 1, e), e) for p, (s, e) in part.ranges.items()})


class _Newest(_Rows):
    """Reads what is there now, not what was there."""

    def slice(self, part: SourceSlice) -> Sequence[Form]:
        start, end = part.ranges.get(0, (0, 0))
        there = len(self.seen)
        return super().slice(SourceSlice({0: (there - (end - start), there)}))


class _Reorders(_Rows):
    """Another order in every process."""

    def __init__(self, rows: list[int]) -> None:
        super().__init__(rows)
        self.seen = list(reversed(rows))


class _Backwards(_Rows):
    calls = 0

    def head(self, now: int) -> Offsets:
        _Backwards.calls += 1
        return {0: max(0, len(self.seen) - _Backwards.calls % 2)}


class _Consumes(_Rows):
    """Counts by taking away."""

    def pending(self, at: Offsets, now: int) -> int | None:
        return len([self.seen.pop() for _ in self.seen[:1]])


@pytest.mark.parametrize(
    ("kind", "test", "arguments"),
    [
        (_Skips, "test_every_record_is_read_once", (3,)),
        (_Skips, "test_a_slice_keeps_to_its_limits", ()),
        (_Newest, "test_a_slice_gives_the_same_rows_every_time", ()),
        (_Reorders, "test_a_crash_after_any_call_loses_and_repeats_nothing", (4,)),
        (_Backwards, "test_heads_of_several_threads_agree", ()),
        (_Consumes, "test_pending_counts_without_changing_anything", ()),
    ],
)
def test_the_suite_notices_a_broken_source(
    tmp_path: Path, kind: type[_Rows], test: str, arguments: tuple[Any, ...]
) -> None:
    sound = _Sound()
    getattr(sound, test)(tmp_path / "sound", *arguments)  # the suite can be passed
    broken = _Sound()
    broken.kind = kind
    with pytest.raises(AssertionError):
        getattr(broken, test)(tmp_path / "broken", *arguments)


class _ListSink(SinkBase):
    guarantee = SinkGuarantee.TRANSACTIONAL

    def __init__(self, rows: dict[tuple[str, int], list[Any]], writer: str) -> None:
        self.rows, self.writer = rows, writer

    def last_epoch(self, writer: str) -> int | None:
        return max((e for w, e in self.rows if w == writer), default=-1)

    def write(self, epoch: int, changes: pa.Table, *, digest: str | None = None) -> None:
        self.rows.setdefault((self.writer, epoch), changes.to_pylist())


class _SoundSink(SinkConformance):
    kind: type[_ListSink] = _ListSink

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], list[Any]] = {}

    def open(self, folder: Path, generation: int) -> SinkPort:
        return self.kind(self.rows, self.writer(generation))

    def read(self, folder: Path) -> list[dict[str, Any]]:
        return [row for rows in self.rows.values() for row in rows]


class _Twice(_ListSink):
    def write(self, epoch: int, changes: pa.Table, *, digest: str | None = None) -> None:
        self.rows[self.writer, epoch] = [*self.rows.get((self.writer, epoch), []), *changes.to_pylist()]


class _Boasts(_ListSink):
    def last_epoch(self, writer: str) -> int | None:
        return 99 if self.rows else -1


class _OneWriter(_ListSink):
    def last_epoch(self, writer: str) -> int | None:
        return max((e for _, e in self.rows), default=-1)


class _Forgets(_ListSink):
    """Reports an epoch before it has it: a crash in between loses it."""

    def write(self, epoch: int, changes: pa.Table, *, digest: str | None = None) -> None:
        if epoch != 2:
            super().write(epoch, changes, digest=digest)
        else:
            self.rows[self.writer, epoch] = []


@pytest.mark.parametrize(
    ("kind", "test", "arguments"),
    [
        (_Twice, "test_an_epoch_that_is_written_again_is_there_as_the_guarantee_says", ()),
        (_Boasts, "test_the_last_epoch_is_never_one_that_is_not_there", ()),
        (_OneWriter, "test_writers_are_told_apart", ()),
        (_Forgets, "test_a_crash_at_any_point_leaves_each_epoch_as_the_guarantee_says", ("after write",)),
    ],
)
def test_the_suite_notices_a_broken_sink(
    tmp_path: Path, kind: type[_ListSink], test: str, arguments: tuple[Any, ...]
) -> None:
    getattr(_SoundSink(), test)(tmp_path, *arguments)
    broken = _SoundSink()
    broken.kind = kind
    with pytest.raises(AssertionError):
        getattr(broken, test)(tmp_path, *arguments)
