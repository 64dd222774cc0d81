"""Runs and the reader over them, against a plain dict; every kind of damage is noticed."""

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.clock import END_OF_TIME
from millstream.errors import DiskFull, HomeDamaged
from millstream.kernels.outcome import DUE_BY_CLOCK, DUE_BY_FRACTION, DUE_BY_WATERMARK
from millstream.state import durable
from millstream.state.durable import write_durably
from millstream.state.local_storage import LocalStorage
from millstream.state.run import MAX_BATCHES, TIMED, Batch, OpenRun, StateRun
from millstream.state.run_block import RunBlock
from millstream.state.shard import KEY_GROUPS, RunCache, StateReader, key_group, shard_of, shard_range

UNIQUE = ["$h", "$s", "k"]
HASHES = [-(2**63), -(2**60), -1, 0, 1, 2**62, 2**63 - 1]
ROW = st.tuples(st.sampled_from(HASHES), st.integers(0, 5), st.sampled_from([None, "a", "b"]))
"""Hash, slice and key: several keys share a hash."""
RUNS = st.lists(st.lists(ROW, min_size=1, max_size=8, unique=True), max_size=6)


def frame(rows: list[tuple[Any, ...]], stamp: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "$h": [r[0] for r in rows],
            "$s": [r[1] for r in rows],
            "k": [r[2] for r in rows],
            "v": [stamp * 1000 + i for i in range(len(rows))],
        },
        schema={"$h": pl.Int64, "$s": pl.Int64, "k": pl.String, "v": pl.Int64},
    )


def ends(rows: pl.DataFrame) -> np.ndarray:
    return rows["$s"].to_numpy() * 10 + 10


def written(root: Path, runs: list[list[tuple[Any, ...]]]) -> tuple[list[StateRun], dict[tuple[Any, ...], int]]:
    made, newest = [], {}
    for stamp, rows in enumerate(runs):
        data = frame(rows, stamp)
        made.append(RunCache(root).write(f"v/{stamp}.arrow", data, ends(data)))
        newest.update({r: stamp * 1000 + i for i, r in enumerate(rows)})
    return made, newest


def as_dict(found: pl.DataFrame | None) -> dict[tuple[Any, ...], int]:
    rows = [] if found is None else found.rows()
    assert len({r[:3] for r in rows}) == len(rows), "a key came twice"
    return {r[:3]: r[3] for r in rows}


@settings(max_examples=30)
@given(RUNS, st.lists(st.sampled_from([*HASHES, 5, -77]), unique=True), st.sampled_from([-1, 0, 10, 25, 40, 60, 70]))
def test_a_lookup_gives_the_newest_row_of_every_key_with_these_hashes(
    runs: list[Any], wanted: list[int], after: int
) -> None:
    with tempfile.TemporaryDirectory() as root:
        made, newest = written(Path(root), runs)
        reader = StateReader(RunCache(Path(root)), made, UNIQUE)
        found = as_dict(reader.lookup(np.array(sorted(wanted), dtype=np.int64), after))
        assert found == {k: v for k, v in newest.items() if k[0] in wanted and k[1] * 10 + 10 > after}


@settings(max_examples=30)
@given(RUNS, st.sampled_from([-1, 0, 10, 25, 40, 60, 70]), st.integers(1, 16))
def test_the_scans_of_all_shards_are_the_scan_of_the_whole(runs: list[Any], after: int, shards: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        made, newest = written(Path(root), runs)
        cache = RunCache(Path(root))
        whole = {k: v for k, v in newest.items() if k[1] * 10 + 10 > after}
        assert as_dict(StateReader(cache, made, UNIQUE).scan(after)) == whole
        parts = [as_dict(StateReader(cache, made, UNIQUE, shard_range(s, shards)).scan(after)) for s in range(shards)]
        assert sum(map(len, parts)) == len(whole) and {k: v for p in parts for k, v in p.items()} == whole


@pytest.mark.parametrize("shards", range(1, 17))
def test_shards_partition_the_hashes_exactly(shards: int) -> None:
    ranges = [shard_range(s, shards) for s in range(shards)]
    assert ranges[0][0] == -(2**63) and ranges[-1][1] == 2**63 - 1
    assert all(before[1] + 1 == behind[0] for before, behind in pairwise(ranges))
    edges = np.array([e for r in ranges for e in r], dtype=np.int64)
    assert shard_of(edges, shards).tolist() == [s for s in range(shards) for _ in range(2)]
    groups = key_group(np.array([r[0] for r in ranges], dtype=np.int64))
    assert groups.tolist() == [s * KEY_GROUPS // shards for s in range(shards)]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.integers(1, 16))
def test_a_hash_lies_in_the_range_of_its_shard_and_a_key_group_in_one_shard(hashes: list[int], shards: int) -> None:
    of = shard_of(np.array(hashes, dtype=np.int64), shards)
    groups = key_group(np.array(hashes, dtype=np.int64))
    assert groups.min() >= 0 and groups.max() < KEY_GROUPS
    for value, shard, group in zip(hashes, of.tolist(), groups.tolist(), strict=True):
        first, last = shard_range(shard, shards)
        assert first <= value <= last
        assert group * shards // KEY_GROUPS <= shard or shards > KEY_GROUPS


def test_a_run_is_one_sorted_batch_per_expiry(tmp_path: Path) -> None:
    rows = frame([(3, 1, "a"), (-5, 1, "a"), (7, 0, "a"), (3, 0, None)], 0)
    run = RunCache(tmp_path).write("v/1.arrow", rows, ends(rows))
    assert run.batches == (Batch(2, 10, 10), Batch(2, 20, 20)) and run.rows == 4
    opened = OpenRun(LocalStorage(tmp_path), run, verify=True)
    for index in range(2):
        found, hashes = opened.batch(index)
        assert hashes.tolist() == sorted(hashes.tolist()) == found["$h"].to_list()
    assert not list(tmp_path.rglob("*.tmp"))


def test_expiry_drops_batches_and_then_the_run(tmp_path: Path) -> None:
    rows = frame([(1, 0, "a"), (1, 1, "a"), (1, 2, "a")], 0)
    run = RunCache(tmp_path).write("v/1.arrow", rows, ends(rows))
    block = RunBlock.of([run])
    assert block.expire(9) is block
    left = block.expire(20)
    assert left is not None
    (kept,) = left.runs
    assert [b.dropped for b in kept.batches] == [True, True, False] and kept.rows == left.rows == 1
    assert left.expire(15) is left
    assert left.expire(30) is None
    found = StateReader(RunCache(tmp_path), [kept], UNIQUE).scan(-1)
    assert found is not None and found["$s"].to_list() == [2]


def test_a_dropped_batch_is_never_opened(tmp_path: Path) -> None:
    rows = frame([(1, 0, "a"), (1, 1, "a")], 0)
    run = RunCache(tmp_path).write("v/1.arrow", rows, ends(rows))
    (tmp_path / run.file).unlink()
    expired = StateRun(run.file, run.crc, run.bytes, tuple(Batch(b.rows, b.first, b.last, True) for b in run.batches))
    reader = StateReader(RunCache(tmp_path), [expired], UNIQUE)
    assert reader.scan(-1) is None and reader.lookup(np.array([1]), -1) is None


def test_more_buckets_than_batches_are_put_together_and_lose_nothing(tmp_path: Path) -> None:
    count = MAX_BATCHES * 3
    rows = frame([(i * 7919 % 101, i, "a") for i in range(count)], 0)
    expiry = ends(rows)
    expiry[-1] = END_OF_TIME
    run = RunCache(tmp_path).write("v/1.arrow", rows, expiry)
    assert MAX_BATCHES // 2 < len(run.batches) <= MAX_BATCHES + 1
    assert run.rows == count and run.batches[-1].last == END_OF_TIME
    assert all(a.last < b.first for a, b in pairwise(run.batches))
    reader = StateReader(RunCache(tmp_path), [run], UNIQUE)
    assert len(as_dict(reader.scan(-1))) == count
    assert len(as_dict(reader.lookup(np.array([5], dtype=np.int64), -1))) == sum(
        1 for i in range(count) if i * 7919 % 101 == 5
    )
    late = RunBlock.of([run]).expire(int(expiry[count // 2]))
    assert late is not None
    left = as_dict(StateReader(RunCache(tmp_path), late.runs, UNIQUE).scan(int(expiry[count // 2])))
    assert {k[1] for k in left} >= set(range(count // 2 + 1, count))


def test_an_empty_run_can_be_written_and_read(tmp_path: Path) -> None:
    rows = frame([], 0)
    run = RunCache(tmp_path).write("v/1.arrow", rows, ends(rows))
    assert run.rows == 0 and StateReader(RunCache(tmp_path), [run], UNIQUE).scan(0) is None


def test_every_flipped_byte_of_a_run_is_noticed(tmp_path: Path) -> None:
    run = RunCache(tmp_path).write("v/1.arrow", pl.DataFrame({"$h": [1, 2]}), np.array([10, 20]))
    path = tmp_path / run.file
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        with pytest.raises(HomeDamaged, match="does not match its checksum"):
            OpenRun(LocalStorage(tmp_path), run, verify=True)
    for damaged in (whole[:-1], whole + b"\0", b""):
        path.write_bytes(damaged)
        with pytest.raises(HomeDamaged, match="checksum"):
            OpenRun(LocalStorage(tmp_path), run, verify=True)
    path.write_bytes(whole)
    assert OpenRun(LocalStorage(tmp_path), run, verify=True).batch(0)[0]["$h"].to_list() == [1]


def test_a_missing_run_is_named(tmp_path: Path) -> None:
    rows = frame([(1, 0, "a")], 0)
    run = RunCache(tmp_path).write("v/1.arrow", rows, ends(rows))
    (tmp_path / run.file).unlink()
    with pytest.raises(HomeDamaged, match=r"v/1\.arrow is missing"):
        StateReader(RunCache(tmp_path), [run], UNIQUE).scan(0)


def test_a_reader_goes_on_with_a_run_that_was_removed_after_it_was_mapped(tmp_path: Path) -> None:
    rows = frame([(1, 0, "a")], 0)
    run = RunCache(tmp_path).write("v/1.arrow", rows, ends(rows))
    cache = RunCache(tmp_path)
    cache.open(run)
    (tmp_path / run.file).unlink()
    assert len(as_dict(StateReader(cache, [run], UNIQUE).scan(0))) == 1
    cache.forget([run.file])
    with pytest.raises(HomeDamaged):
        cache.open(run)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(), st.integers(), st.booleans())), st.integers(0, 2**32 - 1))
def test_a_run_survives_json(batches: list[tuple[int, int, int, bool]], crc: int) -> None:
    run = StateRun("v/1.arrow", crc, 5, tuple(Batch(*b) for b in batches))
    assert StateRun.from_json(run.to_json()) == run


def test_a_full_disk_is_named_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable.os, "fsync", full)
    with pytest.raises(DiskFull, match="no space left"):
        write_durably(tmp_path / "x", b"data")
    assert list(tmp_path.iterdir()) == []


def test_a_shard_opens_only_runs_that_may_hold_its_rows(tmp_path: Path) -> None:
    made, _ = written(tmp_path, [[(-1, 0, "a")], [(1, 0, "a")], [(-1, 0, "b"), (1, 0, "b")]])
    old = StateRun.from_json({k: v for k, v in made[1].to_json().items() if k != "hashes"})
    assert [StateRun.from_json(m.to_json()) for m in made] == made
    cache = RunCache(tmp_path)
    assert set(as_dict(StateReader(cache, [*made[:1], old, made[2]], UNIQUE, shard_range(0, 2)).scan(-1))) == {
        (-1, 0, "a"),
        (-1, 0, "b"),
    }
    assert set(cache._open) == {made[0].file, old.file, made[2].file}
    cache = RunCache(tmp_path)
    StateReader(cache, made, UNIQUE, shard_range(0, 2)).scan(-1)
    assert set(cache._open) == {made[0].file, made[2].file}


TIMES = st.lists(st.one_of(st.integers(-20, 20), st.just(END_OF_TIME)), min_size=1, max_size=5)


@settings(max_examples=50)
@given(st.lists(TIMES, min_size=1, max_size=4), st.integers(-25, 25), st.integers(0, 15), st.booleans())
def test_what_is_due_does_not_depend_on_known_bounds(
    runs: list[list[int]], above: int, wide: int, also_other: bool
) -> None:
    with tempfile.TemporaryDirectory() as root:
        made = []
        for number, times in enumerate(runs):
            rows = pl.DataFrame({"$h": range(len(times)), "$pd": times, "$other": times})
            made.append(RunCache(Path(root)).write(f"v/{number}.arrow", rows, np.full(len(times), 100)))
        old = [StateRun.from_json({k: v for k, v in r.to_json().items() if k != "due"}) for r in made]
        assert all(r.bounds("$pd") == (min(t), max(t)) for r, t in zip(made, runs, strict=True))
        assert [StateRun.from_json(r.to_json()) for r in made] == made and all(r.due is None for r in old)
        new, before = (StateReader(RunCache(Path(root)), r, ["$h"]) for r in (made, old))
        for column in ("$pd", "$other"):
            assert new.next(column, above) == before.next(column, above)
            columns = {column: (above, above + wide)} | ({"$other": (above - 9, above)} if also_other else {})
            assert new.due(columns, 0).tolist() == before.due(columns, 0).tolist()


def test_nothing_is_opened_to_learn_that_nothing_is_due(tmp_path: Path) -> None:
    rows = pl.DataFrame({"$h": [1, 2], "$pd": [10, 20]})
    cache = RunCache(tmp_path)
    run, other = (
        cache.write("v/1.arrow", rows, np.full(2, 100)),
        cache.write("v/2.arrow", rows.drop("$pd"), np.full(2, 100)),
    )
    reader = StateReader(cache, [run, other], ["$h"])
    assert reader.next("$pd", 5) == 10 and reader.next("$pd", 20) == END_OF_TIME
    assert len(reader.due({"$pd": (20, 90)}, 0)) == len(reader.due({"$pd": (0, 9)}, 0)) == 0
    assert not cache._open
    assert reader.next("$pd", 10) == 20 and reader.due({"$pd": (15, 20)}, 0).tolist() == [2]
    assert set(cache._open) == {"v/1.arrow"}


def test_the_columns_of_times_are_those_of_kernels() -> None:
    assert {DUE_BY_CLOCK, DUE_BY_WATERMARK, DUE_BY_FRACTION} <= set(TIMED)
