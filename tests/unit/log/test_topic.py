"""Topics from the outside: appending by hand and in batches, keys, reading, rolling, trimming, holds and retention."""

from __future__ import annotations

from concurrent.futures import as_completed, wait
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from millstream.clock import ManualClock
from millstream.errors import (
    DefinitionError,
    DuplicateName,
    LogError,
    LogFailed,
    LogInUse,
    OffsetsTrimmed,
    RecordRefused,
    RecoveryFailed,
    SchemaError,
    UnknownName,
)
from millstream.log import Ack, Log, Topic
from millstream.log.partitioner import partition_of, partitions_of
from millstream.log.rows import infer
from millstream.log.storage import frame

from .conftest import BIDS

NUMBERS = pa.schema({"n": pa.int64()})


def numbers(topic: Topic, partition: int = 0) -> list[int]:
    table = topic.read(partition, topic.start()[partition], topic.end()[partition])
    return [int(n) for n in table["n"].to_pylist()]


def filled(log: Log, appends: int, **settings: object) -> Topic:
    topic = log.create("t", NUMBERS, **settings)  # type: ignore[arg-type]
    for n in range(appends):
        topic.append({"n": n})
    return topic


def sealed(topic: Topic) -> Topic:
    """Roll, and wait until it is sealed."""
    topic.roll()
    for group in topic._groups.values():
        if group.writer._sealing is not None:
            group.writer._sealing.result()
    return topic


# ---------------------------------------------------------------- topics


def test_a_topic_keeps_what_it_was_made_with(log: Log, tmp_path: Path, clock: ManualClock) -> None:
    made = log.create("bids", BIDS, partitions=3, key="auction", retain_time=5, retain_bytes=7, hard_cap=True)
    again = Log(tmp_path / "log", clock).topic("bids")
    assert again.about == made.about
    assert (again.name, again.partitions, again.key, again.schema) == ("bids", 3, "auction", BIDS)
    assert again.id == made.id
    assert log.topics() == ["bids"]
    assert log.exists("bids")
    assert log.topic("bids") is made


def test_a_topic_that_is_not_there_is_named_with_those_that_are(log: Log) -> None:
    log.create("bids", BIDS)
    with pytest.raises(UnknownName, match="no topic `bid`") as told:
        log.topic("bid")
    assert "bids" in str(told.value)
    assert not log.exists("../log")


def test_a_name_is_taken_once(log: Log) -> None:
    log.create("bids", BIDS)
    with pytest.raises(DuplicateName):
        log.create("bids", BIDS)


def test_a_dropped_topic_is_gone_and_its_name_is_free(log: Log) -> None:
    first = log.create("bids", BIDS)
    first.append({"auction": 1})
    log.drop("bids")
    assert log.topics() == []
    second = log.create("bids", NUMBERS)
    assert second.id != first.id
    assert second.end() == {0: 0}


@pytest.mark.parametrize("name", ["", "../x", "a/b", "1st", "a b", "x" * 64, ".hidden"])
def test_a_name_that_could_be_a_path_is_refused(log: Log, name: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be called"):
        log.create(name, BIDS)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"partitions": 0}, "0 partitions"),
        ({"key": "nothing"}, "not a column"),
        ({"retain_time": 0}, "retain_time"),
        ({"linger": -1.0}, "linger"),
    ],
)
def test_settings_that_make_no_sense_are_refused(log: Log, settings: dict[str, object], said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        log.create("t", BIDS, **settings)  # type: ignore[arg-type]
    assert log.topics() == []


def test_a_key_needs_a_type_with_one_form(log: Log) -> None:
    with pytest.raises(DefinitionError, match="cannot be a key"):
        log.create("t", pa.schema({"x": pa.float64()}), key="x")


def test_a_schema_that_sql_cannot_name_is_refused(log: Log) -> None:
    with pytest.raises(SchemaError):
        log.create("t", pa.schema({"x": pa.time64("us")}))
    with pytest.raises(SchemaError, match="reserved"):
        log.create("t", pa.schema({"$offset": pa.int64()}))


# ---------------------------------------------------------------- appending


def test_rows_come_in_any_shape(log: Log) -> None:
    topic = log.create("t", NUMBERS)
    topic.append({"n": 0})
    topic.append([{"n": 1}, {"n": 2}])
    topic.append(pa.table({"n": [3]}))
    topic.append(pa.record_batch({"n": pa.array([4], pa.int32())}))
    topic.append(pl.DataFrame({"n": [5, 6]}))
    topic.append({"n": i} for i in (7, 8))
    assert topic.append([]) == Ack({})
    assert numbers(topic) == list(range(9))


def test_times_are_given_as_people_write_them(log: Log) -> None:
    topic = log.create("bids", BIDS)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for given in ("2026-01-01T12:00:00", "2026-01-01T12:00:00Z", noon, noon.replace(tzinfo=None), noon.timestamp()):
        topic.append({"auction": 1, "ts": given})
    assert topic.read(0, 0, 5)["ts"].to_pylist() == [noon] * 5


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"auction": 1}, {"auction": "x"}], "row 1: the value of `auction` is not BIGINT"),
        ([{"auction": 1.5}], "row 0: the value of `auction`"),
        ([{"auction": 1 << 70}], "row 0: the value of `auction`"),
        ([{"auction": 1}, {"acution": 2}], "row 1 has a column `acution`"),
        ([{"ts": "noon"}], "row 0: the value of `ts` is not TIMESTAMP"),
        ([1], "row 0 is a int"),
        ("text", "rows cannot be a str"),
        (pa.table({"auction": [1.0, 1.5]}), "row 1: the value of `auction` cannot become BIGINT"),
        (pa.table({"other": [1]}), "does not have a column `other`"),
        (pa.table({"auction": [[1]]}), "cannot become BIGINT"),
    ],
)
def test_rows_that_do_not_fit_are_refused_as_a_whole(log: Log, rows: object, said: str) -> None:
    topic = log.create("bids", BIDS)
    with pytest.raises(RecordRefused, match=said):
        topic.append(rows)
    with pytest.raises(RecordRefused, match=said):
        topic.send(rows).result()
    assert topic.end() == {0: 0}
    assert topic.append({"auction": 1}).offsets == {0: (0, 1)}


def test_a_record_above_the_limit_is_refused_and_its_neighbours_are_not(log: Log) -> None:
    topic = log.create("bids", BIDS, record_bytes=1000)
    with pytest.raises(RecordRefused, match="row 1 is larger than the topic accepts: 1,000 bytes"):
        topic.append([{"name": "x" * 10}, {"name": "x" * 2000}])
    with pytest.raises(RecordRefused, match="larger"):
        topic.append({"name": "x" * 2000})
    assert topic.append([{"name": "x" * 900}] * 5).offsets == {0: (0, 5)}


def test_a_bad_row_that_was_sent_among_good_ones_fails_alone(log: Log) -> None:
    topic = log.create("bids", BIDS, record_bytes=1000)
    rows: list[dict[str, object]] = [{"auction": 1}, {"auction": "x"}, {"name": "y" * 5000}, {"auction": 2}]
    first, wrong, large, last = [topic.send(row) for row in rows * 1]
    assert first.result().offsets[0][0] < last.result().offsets[0][0]
    for refused in (wrong, large):
        with pytest.raises(RecordRefused):
            refused.result()
    assert topic.read(0, 0, topic.end()[0])["auction"].to_pylist() == [1, 2]


def test_rows_with_one_key_stay_in_one_partition_in_order(log: Log) -> None:
    topic = log.create("bids", BIDS, partitions=4, key="name")
    for turn in range(5):
        topic.append([{"auction": turn, "name": name} for name in ("a", "b", "c", "d", "e", None)])
        topic.append({"auction": turn + 100, "name": "a"})
    places: dict[str, set[int]] = {}
    for partition, end in topic.end().items():
        table = topic.read(partition, 0, end)
        for name in set(table["name"].to_pylist()):
            places.setdefault(name, set()).add(partition)
        turns = [r["auction"] for r in table.to_pylist() if r["name"] == "b"]
        assert turns == sorted(turns)
    assert all(len(p) == 1 for p in places.values())
    assert len(set().union(*places.values())) > 1
    assert places[None] == {0}  # type: ignore[index]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63), None, 12345]),
        (pa.int32(), [0, 1, -1]),
        (pa.string(), ["", "a", "Ω", None]),
        (pa.binary(), [b"", b"\0", b"abc"]),
        (pa.bool_(), [True, False]),
        (pa.date32(), [datetime(2026, 1, 1, tzinfo=UTC).date()]),
        (pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, tzinfo=UTC)]),
    ],
)
def test_one_key_goes_where_a_batch_of_keys_goes(kind: pa.DataType, values: list[object]) -> None:
    batch = pa.record_batch([pa.array(values, kind)], names=["k"])
    for partitions in (1, 2, 3, 7, 128):
        together = partitions_of(batch, "k", partitions).tolist()
        assert together == [partition_of(v, kind, partitions) for v in values]


def test_whole_numbers_spread_over_all_partitions() -> None:
    batch = pa.record_batch([pa.array(range(3000), pa.int64())], names=["k"])
    places = partitions_of(batch, "k", 3).tolist()
    assert all(900 < places.count(p) < 1100 for p in range(3))


def test_without_a_key_appends_take_turns(log: Log) -> None:
    topic = log.create("t", NUMBERS, partitions=3)
    for n in range(6):
        topic.append({"n": n})
    assert topic.end() == {0: 2, 1: 2, 2: 2}
    assert topic.append([{"n": 7}, {"n": 8}], partition=1).offsets == {1: (2, 4)}
    with pytest.raises(DefinitionError, match="no partition 3"):
        topic.append({"n": 1}, partition=3)


def test_what_was_sent_cannot_be_cancelled(log: Log) -> None:
    topic = log.create("t", NUMBERS)
    sent = [topic.send({"n": 1}), topic.send([{"n": 2}]), topic.send({"n": 3}, producer="p", sequence=1)]
    assert not any(future.cancel() for future in sent)
    assert [future.result().offsets for future in sent] == [{0: (n, n + 1)} for n in range(3)]


def test_futures_work_as_those_of_the_standard_library(log: Log) -> None:
    topic = log.create("t", NUMBERS)
    told: list[Ack] = []
    futures = [topic.send({"n": n}) for n in range(20)]
    futures[0].add_done_callback(lambda f: told.append(f.result()))
    done, waiting = wait([*futures, topic.send({"n": "x"})], timeout=60)
    assert (len(done), len(waiting), told) == (21, 0, [Ack({0: (0, 1)})])
    assert len(list(as_completed(futures, timeout=60))) == 20
    assert isinstance(topic.send({"n": "x"}).exception(60), RecordRefused)


# ---------------------------------------------------------------- producers


def test_a_retry_lands_once_and_is_answered_as_before(log: Log) -> None:
    topic = log.create("t", NUMBERS, partitions=2)
    first = topic.append([{"n": 1}, {"n": 2}], producer="p", sequence=1, digest="a")
    again = topic.append([{"n": 1}, {"n": 2}], producer="p", sequence=1, digest="a")
    assert (again.offsets, first.repeated, again.repeated) == (first.offsets, False, True)
    topic.append({"n": 3}, producer="p", sequence=3)
    assert topic.append([{"n": 1}, {"n": 2}], producer="p", sequence=1, digest="a") == Ack({}, repeated=True)
    with pytest.raises(RecoveryFailed, match="different content"):
        topic.append({"n": 4}, producer="p", sequence=3, digest="b")
    assert sum(topic.end().values()) == 3


def test_producers_are_remembered_over_rolls_trims_and_restarts(log: Log, tmp_path: Path, clock: ManualClock) -> None:
    topic = log.create("t", NUMBERS)
    first = topic.append({"n": 1}, producer="p", sequence=7)
    topic.append({"n": 2}, producer="q", sequence=1)
    sealed(topic)
    topic.trim({0: 2})
    assert topic.start() == {0: 2}
    log.close()
    again = Log(tmp_path / "log", clock)
    ack = again.topic("t").append({"n": 1}, producer="p", sequence=7)
    assert (ack.offsets, ack.repeated) == (first.offsets, True)
    again.close()


def test_only_the_producers_heard_of_last_are_remembered(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "MAX_PRODUCERS", 3)
    topic = log.create("t", NUMBERS)
    for name in "abcad":
        topic.append({"n": 1}, producer=name, sequence=ord(name) if name != "a" else topic.end()[0])
    assert list(topic._groups[0].writer.producers) == ["c", "a", "d"]


def test_a_producer_needs_a_sequence(log: Log) -> None:
    topic = log.create("t", NUMBERS)
    with pytest.raises(DefinitionError, match="go together"):
        topic.append({"n": 1}, producer="p")


def test_the_same_sequence_sent_twice_at_once_lands_once(log: Log) -> None:
    topic = log.create("t", NUMBERS)
    acks = [topic.send({"n": 1}, producer="p", sequence=1) for _ in range(50)]
    offsets = {tuple(a.result().offsets.items()) for a in acks}
    assert offsets == {((0, (0, 1)),)}
    assert sum(not a.result().repeated for a in acks) == 1
    assert topic.end() == {0: 1}


# ---------------------------------------------------------------- reading


def test_what_is_read_says_where_and_when(log: Log, clock: ManualClock) -> None:
    topic = log.create("t", NUMBERS, partitions=2)
    topic.append({"n": 1}, partition=1)
    clock.advance(1_000_000)
    topic.append([{"n": 2}, {"n": 3}], partition=1)
    table = topic.read(1, 0, 3)
    assert table.column_names == ["n", "$part", "$offset", "$time"]
    assert table["$part"].to_pylist() == [1, 1, 1]
    assert table["$offset"].to_pylist() == [0, 1, 2]
    assert table["$time"].cast(pa.int64()).to_pylist() == [clock.now() - 1_000_000, clock.now(), clock.now()]
    assert topic.read(1, 1, 2)["n"].to_pylist() == [2]
    assert topic.read(1, 3, 3).num_rows == 0


def test_only_the_columns_asked_for_are_read(log: Log) -> None:
    topic = log.create("bids", BIDS)
    topic.append({"auction": 1, "name": "x"})
    for where in ("in the write-ahead file", "in a segment"):
        assert topic.read(0, 0, 1, columns=["name"]).column_names == ["name", "$part", "$offset", "$time"], where
        sealed(topic)
    with pytest.raises(LogError, match="does not have a column `x`"):
        topic.read(0, 0, 1, columns=["x"])


def test_the_ingest_time_never_goes_back(log: Log, tmp_path: Path) -> None:
    topic = log.create("t", NUMBERS)
    topic.append({"n": 1})
    log.close()
    earlier = Log(tmp_path / "log", ManualClock(5))
    earlier.topic("t").append({"n": 2})
    times = earlier.topic("t").read(0, 0, 2)["$time"].to_pylist()
    assert times[0] == times[1]
    earlier.close()


def test_offsets_are_found_by_time(log: Log, clock: ManualClock) -> None:
    topic = log.create("t", NUMBERS)
    begin = clock.now()
    for n in range(9):
        topic.append({"n": n})
        clock.advance(10)
        if n in (2, 5):
            sealed(topic)
    assert [topic.at(begin + t)[0] for t in (-5, 0, 1, 10, 25, 55, 80, 81)] == [0, 0, 1, 1, 3, 6, 8, 9]


def test_segments_are_parquet_that_others_read(log: Log) -> None:
    topic = log.create("bids", BIDS)
    topic.append([{"auction": i, "name": f"n{i}", "ts": i} for i in range(100)])
    sealed(topic)
    topic.append({"auction": 100})
    segment, rest = topic.parts(0, 10, 101)
    assert (segment.start, segment.end, segment.whole, segment.base) == (10, 100, False, 0)
    assert (rest.start, rest.end, rest.path, rest.base) == (100, 101, None, 100)
    assert segment.path is not None
    topic.verify_segment(segment.path)
    read = f"FROM read_parquet('{segment.path}')"
    assert duckdb.sql(f'SELECT count(*), sum(auction), max("$offset") {read}').fetchall() == [(100, 4950, 99)]
    assert pl.read_parquet(segment.path).height == 100
    assert topic.read(0, 10, 101)["auction"].to_pylist() == list(range(10, 101))
    assert topic.stats()[0].segments == 1


def test_a_full_file_is_rolled_and_records_stay_in_order(log: Log) -> None:
    topic = filled(log, 20, segment_rows=3)
    sealed(topic)
    assert numbers(topic) == list(range(20))
    parts = topic.parts(0, 0, 20)
    assert [(p.start, p.end) for p in parts] == [(b, min(b + 3, 20)) for b in range(0, 20, 3)]
    assert all(p.path is not None for p in parts)
    assert topic.verify() == []


def test_offsets_that_are_not_there_are_not_read(log: Log) -> None:
    topic = filled(log, 3)
    with pytest.raises(LogError, match="0 to 4 of partition 0 are not there"):
        topic.read(0, 0, 4)
    with pytest.raises(DefinitionError, match="no partition 1"):
        topic.read(1, 0, 0)


# ---------------------------------------------------------------- trimming and holds


def test_a_trim_removes_whole_files_and_says_which(log: Log) -> None:
    topic = filled(log, 7, segment_rows=3)
    sealed(topic)
    report = topic.trim({0: 5})
    assert report.removed == {0: (0, 3)}
    assert (report.files, report.bytes > 0) == (1, True)
    assert topic.start() == {0: 3}
    assert numbers(topic) == [3, 4, 5, 6]
    with pytest.raises(OffsetsTrimmed, match="the offsets below 3 of partition 0 were trimmed"):
        topic.read(0, 2, 5)
    assert topic.trim({0: 5}).removed == {}


def test_all_can_be_trimmed_also_what_is_not_sealed(log: Log, tmp_path: Path, clock: ManualClock) -> None:
    topic = filled(log, 5)
    assert topic.trim({0: 5}).removed == {0: (0, 5)}
    assert topic.append({"n": 5}).offsets == {0: (5, 6)}
    log.close()
    again = Log(tmp_path / "log", clock)
    assert numbers(again.topic("t")) == [5]
    assert again.topic("t").verify() == []


def test_a_hold_is_not_crossed_unless_forced(log: Log) -> None:
    topic = filled(log, 9, segment_rows=3)
    sealed(topic)
    topic.hold("flow/bids", {0: 4})
    assert topic.holds() == {"flow/bids": {0: 4}}
    with pytest.raises(LogError, match="flow/bids still needs partition 0 from offset 4 on"):
        topic.trim({0: 6})
    assert topic.start() == {0: 0}
    assert topic.trim({0: 4}).removed == {0: (0, 3)}
    forced = topic.trim({0: 6}, force=True)
    assert (forced.removed, forced.crossed) == ({0: (3, 6)}, {"flow/bids": {0: 4}})
    with pytest.raises(OffsetsTrimmed):
        topic.hold("late", {0: 5})
    assert topic.release("flow/bids")
    assert not topic.release("flow/bids")
    assert topic.trim({0: 9}).removed == {0: (6, 9)}


def test_retention_by_time_keeps_what_readers_need(log: Log, clock: ManualClock) -> None:
    topic = filled(log, 3, segment_rows=3, retain_time=100)
    topic.hold("r", {0: 1})
    clock.advance(101)
    report = topic.retain()
    assert (report.removed, report.held) == ({}, {"r": {0: 1}})
    topic.hold("r", {0: 3})
    assert topic.retain().removed == {0: (0, 3)}
    topic.append({"n": 3})
    clock.advance(100)
    assert topic.retain().removed == {}
    clock.advance(1)
    topic.hold("r", {0: 3})
    hard = topic.retain(hard=True)
    assert (hard.removed, hard.crossed) == ({0: (3, 4)}, {"r": {0: 3}})


def test_a_hard_cap_crosses_holds_and_says_so(log: Log, clock: ManualClock) -> None:
    topic = filled(log, 3, retain_time=100, hard_cap=True)
    topic.hold("r", {0: 1})
    clock.advance(101)
    assert topic.retain().crossed == {"r": {0: 1}}


def test_retention_by_size_removes_the_oldest(log: Log) -> None:
    topic = filled(log, 12, segment_rows=3, retain_bytes=1)
    sealed(topic)
    topic.retain()
    assert topic.start() == {0: 12}
    assert topic.append({"n": 12}).offsets == {0: (12, 13)}


def test_retention_goes_on_by_itself_while_segments_are_sealed(log: Log) -> None:
    topic = filled(log, 13, segment_rows=3, retain_bytes=1)
    sealed(topic)
    assert topic.start()[0] >= 9


# ---------------------------------------------------------------- writers


def test_a_second_writer_is_refused_and_a_reader_is_not(log: Log, tmp_path: Path, clock: ManualClock) -> None:
    topic = filled(log, 2)
    other = Log(tmp_path / "log", clock).topic("t")
    assert numbers(other) == [0, 1]
    with pytest.raises(LogInUse, match="partition 0"):
        other.append({"n": 2})
    topic.append({"n": 2})
    assert numbers(other) == [0, 1, 2]
    topic.close()
    assert other.append({"n": 3}).offsets == {0: (3, 4)}
    other.close()


def test_a_closed_topic_takes_nothing(log: Log) -> None:
    topic = filled(log, 1)
    topic.close()
    with pytest.raises(LogFailed, match="closed"):
        topic.append({"n": 1})
    assert log.topic("t").append({"n": 1}).offsets == {0: (1, 2)}


def test_what_was_sent_is_durable_after_close(log: Log) -> None:
    topic = log.create("t", NUMBERS)
    acks = [topic.send({"n": n}) for n in range(1000)]
    topic.close()
    assert all(a.done() for a in acks)
    assert numbers(log.topic("t")) == list(range(1000))


# ---------------------------------------------------------------- schemas from rows


def test_a_schema_is_taken_from_rows() -> None:
    rows = [{"a": 1, "b": "x", "t": "2026-01-01T00:00:00Z", "f": 1.5}, {"a": None, "c": [1], "z": None}]
    found = infer(rows)
    assert found == pa.schema(
        {
            "a": pa.int64(),
            "b": pa.string(),
            "t": pa.timestamp("us", "UTC"),
            "f": pa.float64(),
            "c": pa.list_(pa.int64()),
            "z": pa.string(),
        }
    )
    assert infer(pl.DataFrame({"a": [1], "s": ["x"]})) == pa.schema({"a": pa.int64(), "s": pa.string()})
    with pytest.raises(SchemaError, match="no single type fits the column `a`"):
        infer([{"a": 1}, {"a": "x"}])
