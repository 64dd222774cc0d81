"""Watermarks: the slowest live partition, idle sources that go with the clock, shares of the data, and who holds."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millstream as ms
from millstream.clock import ALL_READ, BEGINNING, END_OF_TIME
from millstream.connect.memory import MemorySource
from millstream.connect.port import SourceSlice
from millstream.kernels.disorder import buckets, upper, within
from millstream.kernels.intake import Tally, take_in
from millstream.runtime.epoch.progress import Progress
from millstream.runtime.epoch.watermarks import SourceStanding, Watermarks, standings
from millstream.runtime.inspect.status import watermark_rows
from millstream.store.port import EpochRow

BIDS = SourceStanding("bids", (0,), lateness=2)
TWO = replace(BIDS, partitions=(0, 1))
IDLE = replace(BIDS, idle=10)
IDLE_TWO = replace(TWO, idle=10)
SALES = SourceStanding("sales", (0,), lateness=3)


def at(marks: Watermarks, look: SourceStanding, now: int) -> int:
    return marks.of([look], now)[look.name]


def given_marks(marks: Watermarks, *looks: SourceStanding, now: int) -> dict[str, int]:
    """The watermarks of an epoch, remembered as the loop does."""
    found = marks.of(looks, now)
    marks.last.update(found)
    return found


# ---------------------------------------------------------------- partitions


def test_the_watermark_is_the_slowest_partition_less_the_lateness() -> None:
    marks = Watermarks()
    marks.seen("bids", {0: 100, 1: 50}, now=0)
    assert at(marks, TWO, 0) == 48
    marks.seen("bids", {1: 70}, now=1)
    marks.seen("bids", {1: 60}, now=2)
    assert at(marks, TWO, 2) == 68


def test_time_has_not_begun_while_a_partition_has_shown_nothing() -> None:
    marks = Watermarks()
    assert at(marks, BIDS, 0) == BEGINNING
    marks.seen("bids", {0: 100}, now=0)
    assert at(marks, TWO, 10**9) == BEGINNING


def test_partitions_may_have_any_numbers() -> None:
    marks, odd = Watermarks(), replace(BIDS, partitions=(3, 7))
    marks.seen("bids", {3: 100, 7: 50}, now=0)
    assert at(marks, odd, 0) == 48
    assert marks.holder([odd], 0) == ("bids", 7)
    held = Held(odd)
    held.epoch(1, bids={3: 100, 7: 50})
    assert [r["partition"] for r in watermark_rows(held, 1) if r["source"] == "bids"] == [3, 7]
    assert held.holds() == ("bids", 7, 1)


def test_a_partition_silent_for_the_idle_timeout_is_left_out_until_it_speaks_again() -> None:
    marks = Watermarks()
    marks.seen("bids", {0: 100, 1: 50}, now=0)
    marks.seen("bids", {0: 200}, now=9)
    assert given_marks(marks, IDLE_TWO, now=9) == {"bids": 48}
    assert given_marks(marks, IDLE_TWO, now=10) == {"bids": 198}
    marks.seen("bids", {1: 51}, now=11)
    assert given_marks(marks, IDLE_TWO, now=11) == {"bids": 198}  # it counts again, but nothing goes back
    marks.seen("bids", {0: 300}, now=12)
    assert given_marks(marks, IDLE_TWO, now=12) == {"bids": 198}


def test_a_partition_that_has_shown_nothing_holds_the_watermark_until_the_idle_timeout() -> None:
    marks = Watermarks()
    marks.seen("bids", {0: 100}, now=0)
    marks.seen("bids", {0: 101}, now=9)
    assert at(marks, IDLE_TWO, 9) == BEGINNING
    assert at(marks, IDLE_TWO, 10) == 99


def test_a_partition_speaks_if_only_to_say_nothing_of_time() -> None:
    marks = Watermarks()
    marks.seen("bids", {0: 100, 1: 50}, now=0)
    marks.seen("bids", {0: 200}, now=9, heard=[0, 1])  # records of partition 1, but no punctuation among them
    assert at(marks, IDLE_TWO, 15) == 48
    assert at(marks, replace(IDLE_TWO, lateness=None), 15) == 50


def test_a_source_read_to_its_end_and_one_without_event_time() -> None:
    marks = Watermarks()
    assert at(marks, replace(BIDS, finished=True), 5) == ALL_READ
    clock = replace(BIDS, timed=False)
    assert given_marks(marks, clock, now=9) == {"bids": 9}
    assert given_marks(marks, clock, now=5) == {"bids": 9}


# ---------------------------------------------------------------- idle sources


def test_when_all_partitions_are_silent_event_time_flows_with_the_clock() -> None:
    marks = Watermarks()
    marks.seen("bids", {0: 100}, now=0)
    marks.seen("bids", {1: 50}, now=4)
    assert at(marks, IDLE_TWO, 9) == 48
    assert at(marks, IDLE_TWO, 13) == 48  # partition 1 is heard of still
    assert given_marks(marks, IDLE_TWO, now=14) == {"bids": 100 - 2 + 10}
    assert given_marks(marks, IDLE_TWO, now=20) == {"bids": 100 - 2 + 16}
    marks.seen("bids", {0: 105}, now=21)
    assert given_marks(marks, IDLE_TWO, now=21) == {"bids": 114}  # it was later than the record: that one is late
    marks.seen("bids", {0: 200}, now=22)
    assert given_marks(marks, IDLE_TWO, now=22) == {"bids": 198}


def test_a_single_partition_without_an_idle_timeout_waits_for_ever() -> None:
    marks = Watermarks()
    marks.seen("bids", {0: 100}, now=0)
    assert at(marks, BIDS, 10**12) == 98


def test_records_that_wait_are_no_silence_however_long_nobody_looked() -> None:
    """After a night in which the flow did not run, what waits must not be late by the length of the night."""
    marks = Watermarks()
    marks.seen("bids", {0: 100}, now=0)
    assert at(marks, replace(IDLE, waiting=frozenset({0})), 10_000) == 98
    assert at(marks, IDLE, 10_000) == 98 + 10_000


def test_a_generator_stands_still_with_its_flow() -> None:
    marks = Watermarks()
    marks.seen("bids", {0: 100}, now=0)
    marks.rested("bids", 10_000)
    marks.rested("sales", 10_000)
    assert at(marks, IDLE, 10_009) == 98
    assert at(marks, IDLE, 10_010) == 98 + 10


# ---------------------------------------------------------------- several sources


def test_an_idle_source_goes_with_the_clock_and_the_others_with_their_records() -> None:
    marks = Watermarks()
    marks.seen("bids", {0: 100}, now=0)
    marks.seen("sales", {0: 500}, now=12)
    assert marks.of([IDLE, SALES], 9) == {"bids": 98, "sales": 497}
    assert marks.of([IDLE, SALES], 12) == {"bids": 98 + 12, "sales": 497}


def test_a_source_that_never_showed_a_record_goes_with_the_fastest_of_the_others() -> None:
    marks, third = Watermarks(), SourceStanding("visits", (0,))
    silent = replace(IDLE, partitions=(0, 1))
    marks.seen("sales", {0: 500}, now=1)
    marks.seen("visits", {0: 700}, now=1)
    marks.reach([silent, SALES, third], 1)
    looks = [silent, SALES, third]
    assert given_marks(marks, *looks, now=10) == {"bids": BEGINNING, "sales": 497, "visits": 700}
    assert given_marks(marks, *looks, now=11) == {"bids": 700, "sales": 497, "visits": 700}
    spoke = replace(silent, waiting=frozenset({0}))
    assert given_marks(marks, spoke, SALES, third, now=12)["bids"] == 700
    marks.seen("bids", {0: 100}, now=12)
    assert given_marks(marks, *looks, now=12)["bids"] == 700


def test_alone_or_without_an_idle_timeout_such_a_source_stays_at_the_beginning() -> None:
    marks = Watermarks()
    marks.reach([IDLE], 0)
    assert at(marks, IDLE, 1000) == BEGINNING
    marks.seen("sales", {0: 500}, now=0)
    marks.reach([BIDS, SALES], 0)
    assert marks.of([BIDS, SALES], 1000) == {"bids": BEGINNING, "sales": 497}
    nobody = replace(SALES, name="visits", idle=5)
    marks.reach([IDLE, nobody], 0)
    assert marks.of([IDLE, nobody], 1000) == {"bids": BEGINNING, "visits": BEGINNING}


def test_the_end_of_another_source_is_not_the_end_of_one_that_never_spoke() -> None:
    marks = Watermarks()
    marks.seen("sales", {0: 500}, now=0)
    marks.reach([IDLE, SALES], 0)
    ended = replace(SALES, finished=True)
    assert marks.of([IDLE, ended], 10) == {"bids": 497, "sales": ALL_READ}
    clock = replace(SALES, timed=False)
    assert marks.of([IDLE, clock], 10) == {"bids": 10, "sales": 10}


# ---------------------------------------------------------------- any story

EVENTS = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 2), st.integers(-50, 50), max_size=3),
        st.sets(st.integers(0, 2)),
        st.integers(0, 20),
    ),
    max_size=12,
)


@given(EVENTS, st.one_of(st.none(), st.integers(1, 30)), st.booleans())
def test_a_watermark_never_goes_back_nor_runs_ahead_of_what_was_seen_and_the_clock(
    events: list[tuple[dict[int, int], set[int], int]], idle: int | None, look_ahead: bool
) -> None:
    marks, now, last, newest, heard = Watermarks(), 0, BEGINNING, BEGINNING, 0
    source = SourceStanding("bids", (0, 1, 2), lateness=2, idle=idle)
    for seen, silent, step in events:
        now += step
        waiting = frozenset(seen) | silent if look_ahead else frozenset()
        mark = at(marks, replace(source, waiting=waiting), now)
        assert last <= mark
        assert mark == last or mark <= newest - 2 + (0 if idle is None else now - heard)
        shares = marks.of_shares([source], now, [0.5, 0.9])["bids"]
        assert mark <= shares["0.9"] <= shares["0.5"] or look_ahead
        marks.last["bids"] = last = mark
        marks.seen("bids", seen, now, heard=silent)
        if seen or silent:
            newest, heard = max([newest, *seen.values()]), now
        again = Watermarks.from_json(json.loads(json.dumps(marks.to_json())))
        assert again == marks


# ---------------------------------------------------------------- shares of the data


def test_buckets_hold_what_they_say_and_are_narrow() -> None:
    for distance in [*range(200), *(2**k + d for k in range(8, 62) for d in (-1, 0, 1))]:
        (bucket,) = buckets(np.array([distance]))
        assert distance <= upper(bucket) < max(distance * 9 / 8, distance + 1) or bucket == 479
        assert bucket == 0 or upper(bucket - 1) < distance


@given(st.lists(st.integers(0, 10**12), min_size=1), st.floats(0.01, 0.99))
def test_a_distance_within_which_a_share_of_the_records_came(distances: list[int], share: float) -> None:
    reached = within(buckets(np.array(distances)), share)
    assert sum(d <= reached for d in distances) >= share * len(distances) - 1e-6
    below = sum(d * 9 / 8 + 1 < reached for d in distances)
    assert below <= share * len(distances) + 1e-6
    assert within({}, share) == END_OF_TIME


def rows(*times: tuple[int, int], mark: list[int | None] | None = None) -> pl.DataFrame:
    frame = pl.DataFrame(
        {
            "$ts": [t for _, t in times],
            "$part": pl.Series([p for p, _ in times], dtype=pl.Int32),
            "$bad": pl.Series([0] * len(times), dtype=pl.Int32),
        }
    )
    return frame if mark is None else frame.with_columns(pl.Series("$mark", mark, dtype=pl.Int64))


def test_disorder_is_counted_against_what_was_known_before_the_epoch() -> None:
    given_rows = rows((0, 100), (0, 97), (0, 110), (1, 90), (2, 5), (0, 10**6))
    whole = take_in(given_rows, [], 1000, {0: 100, 1: 93}).tally
    assert whole.newest == {0: 110, 1: 90, 2: 5} and whole.future == 1
    assert whole.disorder == {0: 3, 3: 2}
    parts = Tally()
    for i in range(len(given_rows)):
        piece = take_in(given_rows[i : i + 1], [], 1000, {0: 100, 1: 93}).tally
        parts.add(Tally.from_json(json.loads(json.dumps(vars(piece)))))
    assert parts == whole
    assert take_in(given_rows, [], 1000).tally.disorder == {}


def test_only_marked_rows_move_the_newest_event_time() -> None:
    tally = take_in(rows((0, 100), (0, 97), (1, 50), (0, 5000), mark=[None, 97, None, 5000]), [], 1000).tally
    assert tally.newest == {0: 97}
    assert (tally.rows, tally.future) == (4, 1)


def test_the_watermark_of_a_share_follows_the_disorder_and_never_falls_behind_the_watermark() -> None:
    marks, source = Watermarks(), replace(BIDS, lateness=50)
    assert marks.of_shares([source], 0, [0.9]) == {"bids": {"0.9": BEGINNING}}
    marks.seen("bids", {0: 1000}, 0, disorder={0: 90, 5: 5, upper_bucket(40): 5})
    found = marks.of_shares([source], 0, [0.5, 0.9, 0.95, 0.99])["bids"]
    assert found == {"0.5": 1000, "0.9": 1000, "0.95": 995, "0.99": 1000 - upper(upper_bucket(40))}
    marks.shares = {"bids": found}
    marks.seen("bids", {0: 1001}, 1, disorder={upper_bucket(500): 10_000})
    assert marks.of_shares([source], 1, [0.5, 0.9])["bids"] == {"0.5": 1000, "0.9": 1000}  # never back
    marks.seen("bids", {0: 2000}, 2)
    assert marks.of_shares([source], 2, [0.5])["bids"] == {"0.5": 1950}  # never behind the watermark
    assert marks.of_shares([replace(source, finished=True)], 2, [0.5])["bids"] == {"0.5": ALL_READ}
    assert marks.of_shares([replace(source, lateness=None)], 2, [0.5])["bids"] == {"0.5": 2000}
    assert marks.of_shares([source], 2, []) == {}


def upper_bucket(distance: int) -> int:
    (bucket,) = buckets(np.array([distance]))
    return bucket


# ---------------------------------------------------------------- looking at a source


def test_a_look_at_a_source_says_what_waits_and_whether_it_has_ended() -> None:
    flow, memory = ms.Flow("f"), ms.memory(partitions=2)
    stream = flow.source(
        "bids", memory, schema="done BOOLEAN, ts TIMESTAMP", event_time="ts", punctuation="done", idle_timeout="1 s"
    )
    stream.view("v")
    port = MemorySource(memory, flow.sources[0].schema)
    memory.send({"ts": 1}, {"ts": 2}, partition=1)
    memory.end()
    part = SourceSlice({0: (0, 0), 1: (0, 1)})
    (found,) = standings(flow.sources, {"bids": port}, {"bids": {0: 0, 1: 0}}, {"bids": part})  # type: ignore[arg-type]
    assert found == SourceStanding("bids", (0, 1), None, 1_000_000, True, frozenset({1}), False)
    (found,) = standings(flow.sources, {"bids": port}, {"bids": {0: 0, 1: 2}}, {})  # type: ignore[arg-type]
    assert found.finished and not found.waiting
    (found,) = standings(flow.sources, {"bids": port}, {"bids": {7: 1, 3: 1}}, {})  # type: ignore[arg-type]
    assert found.partitions == (3, 7)
    with pytest.raises(ValueError, match="has ended"):
        memory.send({"ts": 3})


# ---------------------------------------------------------------- who holds


class Held:
    """A store with one flow, whose epochs are looks and what they saw."""

    def __init__(self, *looks: SourceStanding) -> None:
        self.looks, self.marks, self.now = looks, Watermarks(), 0
        self.reached: dict[str, int] = {}

    def epoch(self, now: int, **newest: dict[int, int]) -> None:
        self.now = now
        given_marks(self.marks, *self.looks, now=now)
        for source, times in newest.items():
            self.marks.seen(source, times, now)
        self.reached = self.marks.reach(self.looks, now)

    def flows(self) -> list[str]:
        return ["f", "empty"]

    def views(self) -> list[dict[str, object]]:
        return []

    def last(self, flow: str) -> EpochRow | None:
        if flow == "empty":
            return None
        offsets = {s.name: dict.fromkeys(s.partitions, 1) for s in self.looks} | {"gone": {0: 5}}
        progress = Progress(offsets, self.marks, reached=self.reached)
        return EpochRow(1, "p", {}, {"now": self.now}, {}, json.loads(json.dumps(progress.to_json())))

    def holds(self, now: int | None = None) -> tuple[str, int, int | None] | None:
        found = [r for r in watermark_rows(self, now) if r["holds"]]
        assert len(found) <= 1
        return next(((r["source"], r["partition"], micros(r["since"])) for r in found), None)


def micros(value: object) -> int | None:
    return None if value is None else round(value.timestamp() * 1_000_000)  # type: ignore[attr-defined]


def test_the_partition_that_holds_the_flow_is_named_with_the_time_since_when() -> None:
    held = Held(TWO, SALES)
    held.epoch(1, bids={0: 100, 1: 50}, sales={0: 300})
    assert held.holds() == ("bids", 1, 1)
    held.epoch(5, bids={0: 200})
    assert held.holds() == ("bids", 1, 1)
    held.epoch(6, bids={1: 60})
    assert held.holds() == ("bids", 1, 6)  # it has moved, so it holds since then
    held.epoch(7, bids={0: 210, 1: 500})
    assert held.holds() == ("bids", 0, 7)
    held.epoch(9, bids={0: 600})
    assert held.holds(now=50) == ("sales", 0, 9)
    rows = watermark_rows(held, 50)
    assert [(r["source"], r["partition"], micros(r["newest"]), micros(r["watermark"])) for r in rows] == [
        ("bids", 0, 600, 598),
        ("bids", 1, 500, 498),
        ("sales", 0, 300, 297),
    ]
    assert [micros(r["heard_at"]) for r in rows] == [9, 7, 1]
    assert {r["lateness"] for r in rows} == {"2us", "3us"} and not any(r["idle"] or r["ended"] for r in rows)


def test_a_silent_partition_is_idle_and_the_next_one_holds_since_then() -> None:
    held = Held(IDLE_TWO)
    held.epoch(1, bids={0: 100, 1: 50})
    held.epoch(8, bids={0: 200})
    assert held.holds(now=10) == ("bids", 1, 1)
    assert held.holds(now=12) == ("bids", 0, 11)
    assert [r["idle"] for r in watermark_rows(held, 12)] == [False, True]
    assert held.holds(now=18) is None  # all are silent: the clock goes on
    assert held.holds() == ("bids", 1, 1)  # as it was in the last epoch


def test_a_source_without_time_or_at_its_end_holds_nothing() -> None:
    held = Held(replace(BIDS, timed=False))
    held.epoch(1, bids={0: 1})
    assert held.holds() is None
    held = Held(replace(BIDS, finished=True))
    held.epoch(1, bids={0: 1})
    (row,) = watermark_rows(held, 5)
    assert (row["ended"], row["watermark"], row["holds"], row["idle"]) == (True, None, False, False)


def test_a_source_that_never_spoke_holds_until_it_is_given_up() -> None:
    held = Held(SALES, IDLE)
    held.epoch(1, sales={0: 300})
    assert held.holds(now=5) == ("bids", 0, 1)
    assert held.holds(now=11) == ("sales", 0, 11)
