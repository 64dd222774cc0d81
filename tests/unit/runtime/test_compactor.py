"""Merges on the executors, with their tasks in this process: no reader notices, a crash at any moment loses nothing,
and what lost tasks wrote goes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import wait
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.clock import END_OF_TIME
from millstream.engine.tasks import merge_task
from millstream.errors import HomeDamaged
from millstream.model.types.duration import Duration
from millstream.model.windows.window import Window
from millstream.model.windows.windowing import Windowing
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.parts import Measure
from millstream.runtime.epoch import compactor as compactor_module
from millstream.runtime.epoch import kept_versions
from millstream.runtime.epoch.compactor import Compactor
from millstream.runtime.epoch.kept_versions import KEPT_VERSIONS, Upkeep
from millstream.state import manifest
from millstream.state.compaction import FANOUT, due
from millstream.state.local_storage import LocalStorage
from millstream.state.manifest import load_version
from millstream.state.run import StateRun
from millstream.state.shard import RunCache, StateReader, shard_of, shard_range
from millstream.state.storage import Storage
from millstream.state.version import Version
from millstream.testing import Crash
from millstream.testing.script import STEPS
from tests import oracle
from tests.local import LocalEngine, LocalMerger, LocalScript

from .recovery_homes import VIEWS, batch, flow, rows
from .test_state_elsewhere import new_home, no_orphans

STAGE = Aggregation("v", ("k",), Windowing(Window(Duration(10), Duration(10))), (Measure("n", "count", False),))
UNIQUE = ["$h", "$s", "k"]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every merge is a large one."""
    monkeypatch.setattr(compactor_module, "AT_ONCE_ROWS", 0)


def frame(keys: list[int], start: int, stamp: int) -> pl.DataFrame:
    """State rows of windows that begin at `start`; hashes are spread over all shards."""
    hashes = [(k * 0x9E3779B97F4A7C15 + 2**63) % 2**64 - 2**63 for k in keys]
    data = {"$h": hashes, "$s": [start] * len(keys), "k": [str(k) for k in keys], "n$n": [stamp] * len(keys)}
    kinds = {"$h": pl.Int64, "$s": pl.Int64, "k": pl.String, "n$n": pl.Int64}
    return pl.DataFrame(data, schema=kinds).with_columns(pl.lit(1, pl.Int64).alias("$n"))


def written(storage: Storage, epoch: int, rows: pl.DataFrame, shards: int) -> list[StateRun]:
    """The runs that the shards of an epoch write."""
    places, cache = shard_of(rows["$h"].to_numpy(), shards), RunCache(storage)
    found = []
    for shard in range(shards):
        mine = rows.filter(pl.Series(places == shard))
        if len(mine):
            name = f"v/{epoch:012d}-0-{shard}-{epoch}.arrow"
            found.append(cache.write(name, mine, mine["$s"].to_numpy() + 10))
    return found


def reads(storage: Storage, version: Version, after: int, shards: int) -> list[Any]:
    """Everything that operators may read of a state."""
    found: list[Any] = []
    for shard in range(shards):
        hashes = shard_range(shard, shards)
        state = StateReader(RunCache(storage), version.of("v", hashes), UNIQUE, hashes)
        every = state.scan(after)
        live = [] if every is None else sorted(r for r in every.rows() if r[1] + 10 > after)
        some = state.lookup(np.array(sorted({r[0] for r in live})[::2], np.int64), after)
        found += [live, [] if some is None else sorted(r for r in some.rows() if r[1] + 10 > after)]
    return found


def settled(compactor: Compactor) -> None:
    """Wait for the merges that are running."""
    wait([job.new for job in compactor._jobs.values()])


EPOCH = st.tuples(
    st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True),
    st.integers(0, 8),  # by how much the watermark moves
    st.sampled_from([1, 1, 3]),  # shards
    st.booleans(),  # whether merges have time to end
)


@settings(max_examples=12)
@given(st.lists(EPOCH, min_size=FANOUT, max_size=12), st.sampled_from([1, 3]))
def test_no_read_changes_with_a_merge_whatever_has_come_or_gone_meanwhile(epochs: list[Any], parts: int) -> None:
    limit, compactor_module.AT_ONCE_ROWS = compactor_module.AT_ONCE_ROWS, 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            storage, version, watermark = LocalStorage(Path(folder)), Version(), 0
            merger = LocalMerger(storage, parts)
            compactor = Compactor(RunCache(storage), [STAGE], 0, merger)
            for number, (keys, step, shards, ends) in enumerate(epochs):
                watermark += step
                rows = frame(keys, (watermark // 10 + number % 2) * 10, number)
                version = version.advance("v", written(storage, number, rows, shards), watermark)
                before = reads(storage, version, watermark, shards)
                if ends:
                    settled(compactor)
                version = compactor.between(version, number, watermark)
                assert reads(storage, version, watermark, shards) == before
            settled(compactor)
            before = reads(storage, version, watermark, 3)
            version = compactor.between(version, len(epochs), watermark)
            assert reads(storage, version, watermark, 3) == before
            compactor.close()
            assert merger.cancelled
    finally:
        compactor_module.AT_ONCE_ROWS = limit


def spread(storage: Storage, epochs: int, shards: int = 4) -> Version:
    """A version with the runs of some epochs."""
    version = Version()
    for epoch in range(epochs):
        version = version.advance("v", written(storage, epoch, frame(list(range(40)), 0, epoch), shards), 0)
    return version


def test_the_runs_of_the_shards_of_an_epoch_are_one_layer(tmp_path: Path) -> None:
    version = spread(LocalStorage(tmp_path), FANOUT - 1)
    assert len(version.of("v")) == 4 * (FANOUT - 1) and due(version.of("v")) is None
    version = spread(LocalStorage(tmp_path), FANOUT)
    assert [rows for _, rows in version.list_of("v").layers] == [40] * FANOUT
    assert due(version.of("v")) == version.of("v")
    there = Version.from_json(version.to_json())
    assert due(there.of("v")) == version.of("v"), "also after a restart, when all are in one block"


@pytest.mark.usefixtures("large")
def test_a_merge_is_one_layer_and_is_not_merged_again_before_others_are_as_large(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    compactor, version = Compactor(RunCache(storage), [STAGE], 0, LocalMerger(storage)), spread(storage, FANOUT)
    version = compactor.between(version, 10, 0)
    settled(compactor)
    version = compactor.between(version, 11, 0)
    assert len(version.of("v")) == 3 and [rows for _, rows in version.list_of("v").layers] == [40]
    lows = [r.hashes[0] for r in version.of("v") if r.hashes]
    assert lows == sorted(lows)
    version = version.advance("v", written(storage, 12, frame([1, 2], 0, 12), 4), 0)
    assert compactor.between(version, 12, 0) is version or due(version.of("v")) is None
    compactor.close()


@pytest.mark.usefixtures("large")
def test_what_attempts_that_were_lost_wrote_goes_but_not_while_the_merge_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_versions, "SWEEP_EVERY", 1)
    storage = LocalStorage(tmp_path)
    compactor, version = Compactor(RunCache(storage), [STAGE], 0, LocalMerger(storage)), spread(storage, FANOUT)
    upkeep = Upkeep(storage, keep=1)
    version = compactor.between(version, 10, 0)
    settled(compactor)
    merges = {n for n in storage.names() if n.endswith("-c.arrow")}
    assert len(merges) == 6 and compactor.merging == {"v/000000000010-0"}
    for epoch in range(10, 20):  # the flow is slow to look
        assert upkeep.after(epoch, (version,), version, merging=compactor.merging) == []
    after = compactor.between(version, 20, 0)
    assert compactor.merging == frozenset()
    lost = merges - after.files
    assert len(lost) == 3
    gone = upkeep.after(20, (version,), after, merging=compactor.merging)
    assert set(gone) == lost
    for epoch in (21, 22):
        gone += upkeep.after(epoch, (after,), after, merging=compactor.merging)
    assert set(gone) == lost | (version.files - after.files) and storage.names() == after.files
    compactor.close()


@pytest.mark.usefixtures("large")
def test_a_merge_of_another_version_is_not_adopted(tmp_path: Path) -> None:
    """Nothing of it may be in a version that has other runs between, or none of its runs."""
    storage = LocalStorage(tmp_path)
    compactor, version = Compactor(RunCache(storage), [STAGE], 0, LocalMerger(storage)), spread(storage, FANOUT)
    compactor.between(version, 10, 0)
    settled(compactor)
    runs = list(version.of("v"))
    between = written(storage, 11, frame([5], 0, 99), 1)
    other = Version({"v": (*runs[:3], *between, *runs[3:])})
    assert compactor._finish(other, "v") is other and compactor.merging == frozenset()
    compactor.between(version, 12, 0)
    settled(compactor)
    empty = Version({"v": between})
    assert compactor._finish(empty, "v") == empty
    compactor.close()


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("left", [True, False])
def test_a_merge_that_fails_is_reported_unless_its_runs_have_expired(tmp_path: Path, left: bool) -> None:
    storage = LocalStorage(tmp_path)
    compactor, version = Compactor(RunCache(storage), [STAGE], 0, LocalMerger(storage)), spread(storage, FANOUT)
    storage.put(version.of("v")[5].file, b"no run")
    compactor.between(version, 10, 0)
    settled(compactor)
    if left:
        with pytest.raises(HomeDamaged, match="does not match its checksum"):
            compactor.between(version, 11, 0)
    else:
        expired = version.advance("v", [], 10)
        assert compactor.between(expired, 11, 10).of("v") == ()
    compactor.close()


def test_marks_of_deleted_rows_go_only_if_no_run_precedes(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    cache = RunCache(storage)
    kinds = {"$h": pl.Int64, "$gone": pl.Boolean}
    runs = []
    for number, gone in enumerate([False, True, True, True]):
        rows = pl.DataFrame({"$h": [1, 2**61], "$gone": [gone, False]}, schema=kinds)
        runs.append(cache.write(f"v/{number}.arrow", rows, np.array([END_OF_TIME] * 2)))
    expiry = partial(_never, None)
    for oldest, kept in ((True, [2**61]), (False, [1, 2**61])):
        asked = compactor_module.RunMerge(
            "v", f"v/{oldest}", due(runs) or Version().list_of("v"), ("$h",), expiry, 0, oldest
        )
        found = StateReader(cache, LocalMerger(storage, 4).merged(asked), ["$h"]).scan(0)
        assert found is not None and sorted(found["$h"].to_list()) == kept


def _never(_: None, rows: pl.DataFrame) -> np.ndarray:
    return np.full(len(rows), END_OF_TIME)


# ---------------------------------------------------------------- whole flows


class MergingScript(LocalScript):
    """A script whose flow merges runs by tasks. A tick waits for the merges that it starts."""

    def _loop_of(self, home: Any) -> Any:
        def engine(plan: Any, ports: Any, state: Any) -> LocalEngine:
            built = LocalEngine(plan, ports, state, shards=self.shards)
            self.merger = built.merger = LocalMerger(state.runs)
            return built

        return home.loop(self._plan, failpoint=self._failpoint, engine=engine)

    def epoch(self, number: int) -> None:
        """One epoch, and the merges after it."""
        self.home.topic("bids").append(rows(number))
        self.tick()
        settled(self._loop._compactor)  # type: ignore[union-attr]

    def check(self) -> None:
        """The views are those of a batch, and all files of the newest version are there."""
        topic = self.home.topic("bids")
        expected = batch(topic.read(0, 0, topic.end()[0]))
        for view, columns in VIEWS.items():
            oracle.same(self.rows(view), expected[view], columns)
        storage = self.home.open_home.state.of("counting").runs
        row = self.home.store.last("counting")
        assert row is not None
        newest = load_version(row.version, storage).files
        assert newest and set(storage.sizes(newest)) == newest


@pytest.fixture
def state(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the homes of the test have their state."""
    if request.param == "objects":
        yield str(request.getfixturevalue("object_state"))
        return
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv("MILLSTREAM_STATE", f"file://{tmp_path}/shared")
    yield "folder"


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    ("state", "shards", "inline", "steps"),
    [("folder", 1, 512, STEPS), ("folder", 3, 0, STEPS), ("objects", 2, 0, STEPS[1::3])],
    ids=["folder-1-lists", "folder-3-manifests", "objects-2-manifests"],
    indirect=["state"],
)
def test_a_crash_at_any_step_of_a_flow_that_merges_loses_and_repeats_nothing(
    tmp_path: Path, state: str, shards: int, inline: int, steps: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    del state
    monkeypatch.setattr(manifest, "INLINE_BATCHES", inline)
    path, number, merges = new_home(tmp_path / "home"), 0, 0
    with MergingScript(flow(), path, shards=shards) as script:
        for at in steps:
            for _ in range(3):  # merges are adopted, and others run
                number += 1
                script.epoch(number)
            merges += len(script.merger.done)
            number += 1
            script.home.topic("bids").append(rows(number))
            script.crash(at=at)
            with pytest.raises(Crash):
                script.tick()
            script.resume()
            script.tick()
            script.check()
    assert merges >= len(steps)
    no_orphans(path)


@pytest.mark.usefixtures("large")
def test_a_crash_inside_a_task_of_a_merge_or_before_its_adoption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, number = new_home(tmp_path / "home"), 0
    real = merge_task.merge
    with MergingScript(flow(), path, shards=3) as script:
        for place in ("task", "adoption"):
            for _ in range(2 * FANOUT):
                number += 1
                script.epoch(number)

            def failing(*given: Any, **named: Any) -> Any:
                real(*given, **named)
                raise Crash("inside a task")

            with monkeypatch.context() as patch:
                if place == "task":
                    patch.setattr(merge_task, "merge", failing)
                else:
                    patch.setattr(Version, "replaced", failing_adoption)
                with pytest.raises(Crash):
                    for _ in range(3 * FANOUT):
                        number += 1
                        script.epoch(number)
            script.crash()
            script.resume()
            script.tick()
            script.check()
    no_orphans(path)


def failing_adoption(*given: Any) -> Any:
    raise Crash("before the adoption")


@pytest.mark.usefixtures("large")
def test_files_do_not_pile_up_over_many_epochs(tmp_path: Path) -> None:
    path = new_home(tmp_path / "home")
    with MergingScript(flow(), path, shards=3) as script:
        for number in range(1, 45):
            script.epoch(number)
        script.check()
        storage = script.home.open_home.state.of("counting").runs
        epochs = script.home.store.epochs("counting", KEPT_VERSIONS + 2)
        kept = frozenset().union(*(load_version(e.version, storage).files for e in epochs))
        others = storage.names() - kept
        assert len(others) <= 20 * 3 * 2, "lost attempts of the merges since the last search"
    no_orphans(path)


def test_small_merges_stay_in_the_driver(tmp_path: Path) -> None:
    path = new_home(tmp_path / "home")
    with MergingScript(flow(), path, shards=3) as script:
        for number in range(1, 12):
            script.epoch(number)
        assert script.merger.done == []
        version = script._loop.version  # type: ignore[union-attr]
        assert any(f.endswith("-c.arrow") for f in version.files)
