"""State on object storage, with the tasks of Spark: crashes, other numbers of shards, a lost object."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import HomeDamaged
from millstream.state.version import Version
from millstream.testing import Crash, Script

from .test_recovery import counting, send

pytestmark = pytest.mark.spark


def test_spread_epochs_survive_crashes_and_other_numbers_of_shards(
    spark: object, tmp_path: Path, object_state: str
) -> None:
    shards = (2, 7, 3)
    with Script(counting(), tmp_path / "home", placement="spread") as script:
        for batch, number in enumerate(shards):
            send(script, batch)
            script.crash(at="before commit")
            with pytest.raises(Crash):
                script.tick()
            script.resume(shards=number)
            script.tick()
        script.expect_rows("totals", *({"auction": a, "n": n} for a, n in ((0, 21), (1, 21), (2, 18))))
        storage = script.home.open_home.state.of("counting").runs
        row = script.home.store.last("counting")
        assert row is not None
        named = Version.from_json(row.version).files
        assert set(storage.sizes(named)) == named and not list(tmp_path.glob("home/flows/*/state"))
        storage.delete(named)
        script.crash()
        with pytest.raises(HomeDamaged, match=r"the state file s3://states/.*\.arrow is missing"):
            script.resume()


def test_a_task_names_an_object_that_is_missing(
    spark: object, tmp_path: Path, object_state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Script(counting(), tmp_path / "home", placement="spread", shards=2) as script:
        send(script, 0)
        script.tick()
        monkeypatch.setenv("MILLSTREAM_STATE_CACHE", "1GB")  # another storage for Python workers: they have no copies
        script.crash().resume(shards=5)
        storage = script.home.open_home.state.of("counting").runs
        storage.delete(storage.names())
        send(script, 1)
        with pytest.raises(HomeDamaged, match=r"the state file s3://states/.*\.arrow is missing"):
            script.tick()


def test_large_changes_travel_through_the_storage(spark: object, tmp_path: Path, emulated_state: str) -> None:
    with Script(counting(), tmp_path / "home", placement="spread", shards=2) as script:
        rows = [{"auction": i, "price": 3, "ts": 1767225600} for i in range(60_000)]
        script.send("bids", *rows)
        script.tick()
        assert len(script.rows("threes")) == 60_000
        place = script.home.open_home.state.of("counting")
        assert place.changes.names() == set() and place.runs.names()
