"""Versions and compaction: lists of runs stay short, and no reader ever notices."""

import math
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import HomeDamaged
from millstream.model.types.duration import Duration
from millstream.model.windows.window import Window
from millstream.model.windows.windowing import Windowing
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.parts import Measure
from millstream.runtime.epoch import compactor as compactor_module
from millstream.runtime.epoch.compactor import Compactor
from millstream.state.compaction import FANOUT, due, merge
from millstream.state.run import Batch, StateRun
from millstream.state.run_block import RunBlock
from millstream.state.shard import RunCache, StateReader, shard_range
from millstream.state.version import Version

UNIQUE = ["$h", "$s", "k"]


def ends(rows: pl.DataFrame) -> np.ndarray:
    return rows["$s"].to_numpy() * 10 + 10


def frame(rows: list[tuple[int, int, str | None]], stamp: int) -> pl.DataFrame:
    schema = {"$h": pl.Int64, "$s": pl.Int64, "k": pl.String, "v": pl.Int64}
    return pl.DataFrame([(*r, stamp) for r in rows], schema=schema, orient="row")


def seen(cache: RunCache, version: Version, after: int) -> dict[tuple[Any, ...], int]:
    found = StateReader(cache, version.of("v"), UNIQUE).scan(after)
    return {} if found is None else {r[:3]: r[3] for r in found.rows() if r[1] * 10 + 10 > after}


ROW = st.tuples(st.integers(-3, 3), st.integers(0, 6), st.sampled_from([None, "a", "b"]))
EPOCH = st.tuples(st.lists(ROW, max_size=10, unique=True), st.integers(0, 12), st.booleans())


@settings(max_examples=30)
@given(st.lists(EPOCH, max_size=14))
def test_compaction_never_changes_what_a_reader_sees(epochs: list[tuple[list[Any], int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        cache, version, model, watermark = RunCache(root), Version(), {}, 0
        for number, (rows, step, compact) in enumerate(epochs):
            watermark += step
            rows = [r for r in rows if r[1] * 10 + 10 > watermark]
            added = (
                [RunCache(root).write(f"v/{number}.arrow", frame(rows, number), ends(frame(rows, number)))]
                if rows
                else []
            )
            version = version.advance("v", added, watermark)
            model.update({r: number for r in rows})
            model = {k: v for k, v in model.items() if k[1] * 10 + 10 > watermark}
            runs = due(version.of("v")) or (version.of("v")[-3:] if compact and len(version.of("v")) > 1 else None)
            if runs:
                merged = merge(cache, f"v/{number}-c.arrow", runs, UNIQUE, ends, watermark)
                version = version.replaced("v", runs, [merged] if merged is not None else [])
            assert seen(cache, version, watermark) == model
            assert Version.from_json(version.to_json()).to_json() == version.to_json()


def plain(rows: int, file: str) -> StateRun:
    return StateRun(file, 0, rows * 100, (Batch(rows, 10, 10),))


@pytest.mark.parametrize("sizes", [[1], [1000], [1, 5, 500], [100_000, *[1] * 2000]], ids=str)
def test_the_number_of_runs_stays_bounded_over_thousands_of_epochs(sizes: list[int]) -> None:
    """Counted without files: a merge is taken to hold the sum of its runs, as when every key is new."""
    version, written, appended, most = Version(), 0, 0, 0
    for epoch in range(2000):
        rows = sizes[epoch % len(sizes)]
        appended += rows
        version = version.advance("v", [plain(rows, f"{epoch}")], 0)
        runs = due(version.of("v"))
        if runs is not None:
            merged = sum(r.rows for r in runs)
            written += merged
            version = version.replaced("v", runs, [plain(merged, f"{epoch}-c")])
        most = max(most, len(version.of("v")))
    assert version.rows("v") == appended
    assert most <= FANOUT * 6 + 1
    assert written <= appended * 3 * math.log(appended, FANOUT), (
        "compaction writes a row more often than its size classes allow"
    )


def test_when_keys_repeat_state_does_not_grow_with_epochs() -> None:
    """A merge of changes to the same thousand keys holds a thousand rows."""
    version, written = Version(), 0
    for epoch in range(2000):
        version = version.advance("v", [plain(1000, f"{epoch}")], 0)
        runs = due(version.of("v"))
        if runs is not None:
            written += 1000
            version = version.replaced("v", runs, [plain(1000, f"{epoch}-c")])
    assert len(version.of("v")) <= FANOUT * 6 and version.rows("v") <= FANOUT * 6 * 1000
    assert written <= 2000 * 1000


def test_what_is_due_is_always_a_stretch_at_the_young_end_that_shrinks_the_list() -> None:
    for sizes in ([1] * 4, [100, 1, 1, 1, 1], [4, 3, 2, 1], [1, 1, 1], [10**6] + [1] * 25, [64, 16, 4, 1] * 8):
        runs = [plain(n, str(i)) for i, n in enumerate(sizes)]
        chosen = due(runs)
        if chosen is not None:
            assert len(chosen) >= 2 and list(chosen) == runs[-len(chosen) :]
    assert due([]) is None and due([plain(1, "a")]) is None


def test_replacing_keeps_runs_that_were_added_meanwhile_behind_the_merge() -> None:
    old = [plain(1, "a"), plain(1, "b")]
    version = Version({"v": (plain(9, "z"), *old, plain(1, "c"))})
    assert [r.file for r in version.replaced("v", old, [plain(2, "m")]).of("v")] == ["z", "m", "c"]
    assert [r.file for r in version.replaced("v", old, []).of("v")] == ["z", "c"]
    gone = Version({"v": (plain(1, "c"),)})
    assert [r.file for r in gone.replaced("v", old, [plain(2, "m")]).of("v")] == ["c"]


def test_a_version_counts_files_rows_and_bytes_by_step() -> None:
    version = Version({"v": (plain(2, "a"),), "w": (plain(3, "b"), plain(4, "c"))})
    assert (
        version.files == {"a", "b", "c"}
        and version.rows("w") == 7
        and version.bytes("v") == 200
        and version.of("x") == ()
    )


STAGE = Aggregation("v", ("k",), Windowing(Window(Duration(10), Duration(10))), (Measure("n", "count", False),))


def partials(start: int, count: int, stamp: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "$h": range(count),
            "$s": [start] * count,
            "k": [str(i) for i in range(count)],
            "n$n": [stamp] * count,
            "$n": [1] * count,
        }
    )


def test_a_large_merge_beside_the_epochs_is_taken_over_without_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compactor_module, "AT_ONCE_ROWS", 0)
    cache, version = RunCache(tmp_path), Version()
    compactor = Compactor(cache, [STAGE])
    for number in range(FANOUT):
        rows = partials(0, 5, number)
        version = version.advance(
            "v", [RunCache(tmp_path).write(f"v/{number}.arrow", rows, rows["$s"].to_numpy() + 10)], 0
        )
    during = compactor.between(version, 10, 0)
    assert during == version
    compactor._jobs["v"].new.result()
    rows = partials(0, 1, 99)
    newer = during.advance("v", [RunCache(tmp_path).write("v/99.arrow", rows, rows["$s"].to_numpy() + 10)], 0)
    after = compactor.between(newer, 11, 0)
    assert [r.file for r in after.of("v")] == ["v/000000000010-0-c.arrow", "v/99.arrow"]
    found = StateReader(cache, after.of("v"), ["$h", "$s", "k"]).scan(0)
    assert found is not None and sorted(found["n$n"].to_list()) == [3, 3, 3, 3, 99]
    compactor.close()


def test_a_merge_whose_runs_expired_while_it_waited_does_not_stop_the_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop removes files of expired runs; a merge that had not begun then finds them missing."""
    import threading

    monkeypatch.setattr(compactor_module, "AT_ONCE_ROWS", 0)
    cache, version = RunCache(tmp_path), Version()
    compactor = Compactor(cache, [STAGE])
    busy = threading.Event()
    compactor._pool.submit(busy.wait)
    for number in range(FANOUT):
        rows = partials(0, 5, number)
        version = version.advance(
            "v", [RunCache(tmp_path).write(f"v/{number}.arrow", rows, rows["$s"].to_numpy() + 10)], 0
        )
    waiting = compactor.between(version, 10, 0)
    closed = waiting.advance("v", [], 10)
    assert closed.of("v") == ()
    for run in version.of("v"):
        (tmp_path / run.file).unlink()
    cache.forget([r.file for r in version.of("v")])
    job = compactor._jobs["v"].new
    busy.set()
    assert isinstance(job.exception(), HomeDamaged | None)
    assert compactor.between(closed, 12, 10).of("v") == ()
    compactor.close()


def _run(name: str, hashes: tuple[int, int] | None, *lasts: int) -> StateRun:
    return StateRun(name, 7, 8, tuple(Batch(3, last - 1, last) for last in lasts), hashes)


def test_a_version_in_another_process_has_the_same_runs_and_finds_those_of_a_shard() -> None:
    edges = [shard_range(s, 7) for s in range(7)]
    runs = [_run(f"v/{s}.arrow", r, 5) for s, r in enumerate(edges)]
    runs += [_run("v/old.arrow", None, 5), _run("v/all.arrow", (edges[0][0], edges[-1][1]), 5, 9)]
    version = Version({"v": tuple(runs), "w": (), "x": tuple(runs[:1])})
    there = pickle.loads(pickle.dumps(version))
    again = pickle.loads(pickle.dumps(there))
    for packed in (there, again):
        assert {step: list(packed.of(step)) for step in ("v", "w", "x", "y")} == {
            "v": runs,
            "w": [],
            "x": runs[:1],
            "y": [],
        }
        assert packed.files == version.files and packed.rows("v") == version.rows("v")
        for s, hashes in enumerate(edges):
            assert packed.of("v", hashes) == list(version.of("v", hashes)) == [runs[s], *runs[7:]]
        assert packed.of("v")[-1] == runs[-1] and packed.of("v")[:2] == runs[:2]
    assert version.only(["x", "y"]) == Version({"x": tuple(runs[:1])})


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), max_size=4), st.lists(st.integers(0, 9)))
def test_encoded_runs_are_the_runs_and_they_expire_batch_by_batch(
    lasts: list[list[int]], watermarks: list[int]
) -> None:
    version = Version({"v": tuple(_run(f"v/{i}.arrow", None, *each) for i, each in enumerate(lasts))})
    reached = -1
    for watermark in watermarks:
        reached = max(reached, watermark)
        version = version.advance("v", (), watermark)
        kept = {r.file: [b.last for b in r.batches if not b.dropped] for r in version.of("v")}
        live = {f"v/{i}.arrow": [at for at in each if at > reached] for i, each in enumerate(lasts)}
        assert kept == {name: ends for name, ends in live.items() if ends}
    for block in version.list_of("v").blocks:
        assert RunBlock.from_columns([orjson.loads(block.encoded())]).runs == block.runs
    assert Version.from_json(version.to_json()).of("v") == version.of("v")
    assert list(pickle.loads(pickle.dumps(version)).of("v")) == list(version.of("v"))
