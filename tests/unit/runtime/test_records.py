"""Epoch records, progress and watermarks: plain data that survives a restart, and damage that is named."""

from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.clock import ALL_READ, BEGINNING
from millstream.connect.port import SourceSlice
from millstream.errors import HomeDamaged
from millstream.model.connector import Memory, SourceOptions
from millstream.model.duration import Duration
from millstream.model.schema import Schema
from millstream.plan.stages import SourceStage
from millstream.runtime.progress import Progress, count
from millstream.runtime.records import KEPT, EpochRecord, RecordBook
from millstream.runtime.watermarks import Watermarks

NAMES = st.sampled_from(["bids", "sales"])
NUMBERS = st.integers(-(2**62), 2**62)
SLICES = st.builds(SourceSlice, st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 99), st.integers(0, 99))))
RECORDS = st.builds(
    EpochRecord,
    st.integers(1, 10**9),
    st.text("0123456789abcdef"),
    st.integers(1, 99),
    st.dictionaries(NAMES, SLICES),
    NUMBERS,
    st.dictionaries(NAMES, NUMBERS),
    st.dictionaries(NAMES, NUMBERS),
    st.dictionaries(NAMES, st.integers(1, 9)),
)


@settings(max_examples=20)
@given(RECORDS)
def test_a_record_comes_back_as_it_was_written(tmp_path: Path, record: EpochRecord) -> None:
    book = RecordBook(tmp_path)
    book.open(record)
    assert book.read(record.epoch) == record
    book.close(record)
    closed = book.read(record.epoch)
    assert (
        closed is not None and closed.state == "closed" and closed.to_json() == {**record.to_json(), "state": "closed"}
    )


def record(epoch: int) -> EpochRecord:
    return EpochRecord(epoch, "p", 1, {"bids": SourceSlice({0: (0, epoch)})}, 5, {"bids": 1}, {"bids": 0}, {})


def test_a_book_knows_its_newest_record_and_keeps_the_last_ones(tmp_path: Path) -> None:
    book = RecordBook(tmp_path / "epochs")
    assert book.newest() == 0 and book.read(1) is None
    for epoch in range(1, KEPT + 6):
        book.open(record(epoch))
        book.close(record(epoch))
    (tmp_path / "epochs" / ".000000000999.json.tmp").write_text("half")
    assert RecordBook(tmp_path / "epochs").newest() == KEPT + 5
    assert book.read(5) is None and book.read(6) is not None


@pytest.mark.parametrize(
    "garbled",
    [b"", b"{", b"[]", b"null", b"{}", b"\xff\xfe", b'{"format": 2, "epoch": 7}', b'{"format": 1, "epoch": 8}', b"5"],
)
def test_a_torn_or_garbled_record_is_named(tmp_path: Path, garbled: bytes) -> None:
    book = RecordBook(tmp_path)
    (tmp_path / f"{7:012d}.json").write_bytes(garbled)
    with pytest.raises(HomeDamaged, match=r"000000000007\.json cannot be read"):
        book.read(7)


def test_every_torn_prefix_of_a_record_is_noticed(tmp_path: Path) -> None:
    book = RecordBook(tmp_path)
    book.open(record(3))
    path = tmp_path / f"{3:012d}.json"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(HomeDamaged):
            book.read(3)


@given(st.dictionaries(NAMES, st.dictionaries(st.integers(0, 3), NUMBERS)), st.dictionaries(NAMES, st.integers(0, 99)))
def test_progress_survives_json(offsets: dict[str, dict[int, int]], counts: dict[str, int]) -> None:
    progress = Progress(offsets, Watermarks(offsets, offsets, counts), counts, counts, counts, counts, counts)
    count(progress.rows, "bids", 3)
    text = orjson.dumps(progress.to_json(), option=orjson.OPT_NON_STR_KEYS)
    assert Progress.from_json(orjson.loads(text)) == progress


def stage(*, event_time: str | None = "ts", lateness: int = 2, idle: int | None = None) -> SourceStage:
    options = SourceOptions(
        event_time, Duration(lateness), Duration(600), None if idle is None else Duration(idle), None
    )
    return SourceStage("bids", Memory(), Schema.parse("ts TIMESTAMP"), options)


def test_the_watermark_is_the_slowest_partition_less_the_lateness() -> None:
    marks = Watermarks()
    marks.seen("bids", {0: 100, 1: 50}, now=0)
    assert marks.at(stage(), 2, 0, finished=False) == 48
    marks.seen("bids", {1: 70}, now=1)
    marks.seen("bids", {1: 60}, now=2)
    assert marks.at(stage(), 2, 2, finished=False) == 68


def test_time_has_not_begun_while_a_partition_has_shown_nothing() -> None:
    marks = Watermarks()
    assert marks.at(stage(), 1, 0, finished=False) == BEGINNING
    marks.seen("bids", {0: 100}, now=0)
    assert marks.at(stage(), 2, 10**9, finished=False) == BEGINNING


def test_a_partition_silent_for_the_idle_timeout_is_left_out_until_it_speaks_again() -> None:
    marks = Watermarks()
    marks.seen("bids", {0: 100, 1: 50}, now=0)
    source = stage(idle=10)
    marks.seen("bids", {0: 200}, now=9)
    assert marks.at(source, 2, 9, finished=False) == 48
    assert marks.at(source, 2, 10, finished=False) == 198
    marks.last["bids"] = 198
    marks.seen("bids", {1: 51}, now=11)
    assert marks.at(source, 2, 11, finished=False) == 198
    assert marks.at(source, 2, 1000, finished=False) == 198


def test_a_partition_that_has_shown_nothing_holds_the_watermark_until_the_idle_timeout() -> None:
    marks = Watermarks()
    marks.seen("bids", {0: 100}, now=0)
    assert marks.at(stage(idle=10), 2, 1, finished=False) == BEGINNING
    assert marks.at(stage(idle=10), 2, 10, finished=False) == 98


def test_a_source_read_to_its_end_and_one_without_event_time() -> None:
    marks = Watermarks()
    assert marks.at(stage(), 1, 5, finished=True) == ALL_READ
    assert marks.at(stage(event_time=None), 1, 5, finished=False) == 5
    marks.last["bids"] = 9
    assert marks.at(stage(event_time=None), 1, 5, finished=False) == 9


EVENTS = st.lists(
    st.tuples(st.dictionaries(st.integers(0, 2), st.integers(-50, 50), max_size=3), st.integers(0, 20)), max_size=12
)


@given(EVENTS, st.one_of(st.none(), st.integers(1, 30)))
def test_a_watermark_never_goes_back_and_never_passes_the_newest_event(
    events: list[tuple[dict[int, int], int]], idle: int | None
) -> None:
    marks, now, last, newest = Watermarks(), 0, BEGINNING, BEGINNING
    for seen, step in events:
        now += step
        marks.seen("bids", seen, now)
        newest = max([newest, *seen.values()])
        at = marks.at(stage(idle=idle), 3, now, finished=False)
        assert last <= at and (at == BEGINNING or at <= newest - 2)
        marks.last["bids"] = last = at
