"""A home that an earlier version has written is opened and goes on; one of a later version is refused, untouched."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import HomeTooNew
from millstream.model.types.schema import TIMESTAMP
from millstream.runtime.epoch.records import RecordBook
from millstream.runtime.recovery import checkpoint
from millstream.store.duckdb import DuckStore
from millstream.testing import Script
from tests import oracle
from tests.accounting import assert_balanced
from tests.fixtures.make_home import DIED_IN, HOMES, KINDS, flow, good, late, make, sent, wrong
from tests.local import LocalScript

LAST = 8
FIXTURES = [
    pytest.param(path, id=f"{path.parent.name}-{path.name}", marks=[pytest.mark.spark] * (path.parent.name == "spark"))
    for path in sorted(HOMES.glob("*/*.tar.gz"))
]

TOTALS = "SELECT auction, count(*) AS n, sum(price) AS s FROM bids GROUP BY auction"
WINDOWS = "SELECT time_bucket(INTERVAL 10 seconds, ts) AS window_start, auction, count(*) AS n FROM bids GROUP BY ALL"
VISITS = """
SELECT min(ts) AS window_start, max(ts) + INTERVAL 3 seconds AS window_end, count(*) AS n FROM (
  SELECT ts, sum(CASE WHEN ts - before < INTERVAL 3 seconds THEN 0 ELSE 1 END) OVER (ORDER BY ts, nr) AS visit FROM (
    SELECT ts, nr, lag(ts) OVER (ORDER BY ts, nr) AS before FROM (SELECT ts, row_number() OVER () AS nr FROM bids)))
GROUP BY visit
"""


def unpacked(fixture: Path, folder: Path) -> Path:
    with tarfile.open(fixture) as archive:
        archive.extractall(folder, filter="data")
    return folder / "home"


def table(rows: list[dict[str, Any]]) -> pa.Table:
    times = pa.array([r["ts"] * 1_000_000 for r in rows], pa.int64()).cast(TIMESTAMP)
    return pa.table({"auction": [r["auction"] for r in rows], "price": [r["price"] for r in rows], "ts": times})


def hashes(path: Path) -> dict[str, str]:
    return {
        str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() for p in path.rglob("*") if p.is_file()
    }


def gone_on(path: Path, kind: type[Script]) -> Script:
    """The flow, started anew with all that was ever sent, and with what has come since."""
    again = flow()
    memory: Any = again.sources[0].connector
    for batch in range(1, DIED_IN + 1):
        memory.send(*sent(batch))
    script = kind(again, path)
    script.tick()
    for batch in range(DIED_IN + 1, LAST):
        script.send("bids", *sent(batch))
        script.tick(1)
    script.tick()
    return script


def test_there_is_a_home_of_every_version_whose_files_differ() -> None:
    for engine in KINDS:
        found = sorted((HOMES / engine).glob("*.tar.gz"))
        assert [p.name for p in found] >= ["records-1.tar.gz", "records-2.tar.gz"]
        assert all(p.stat().st_size < 100_000 for p in found)


@pytest.mark.parametrize("fixture", FIXTURES)
def test_a_home_of_an_earlier_version_goes_on_rightly(fixture: Path, tmp_path: Path) -> None:
    path = unpacked(fixture, tmp_path)
    newest = RecordBook(path / "flows/upgraded/epochs").read(DIED_IN)
    assert newest is not None and newest.state == "open"
    kind = KINDS[fixture.parent.name]
    with gone_on(path, kind) as script:
        batches = range(1, LAST)
        in_time, all_late = ([r for b in batches for r in rows(b)] for rows in (good, late))
        oracle.same(
            script.rows("totals"), oracle.batch(TOTALS, bids=table([*in_time, *all_late])), ("auction", "n", "s")
        )
        expected = oracle.batch(WINDOWS, bids=table(in_time))
        oracle.same(script.rows("windows"), expected, ("window_start", "auction", "n"))
        oracle.same(
            script.rows("visits"), oracle.batch(VISITS, bids=table(in_time)), ("window_start", "window_end", "n")
        )
        assert len(script.rows("windows$late")) == len(script.rows("visits$late")) == len(all_late) == 2
        errors = [r["raw"] for r in script.rows("bids$errors")]
        assert ["much" in raw for raw in errors] == [True] * (2 if kind is Script else 0)
        (counted,) = (r["errors"] for r in script.home.accounting() if r["kind"] == "source")
        assert counted == sum(len(wrong(b)) for b in batches) == 2
        assert script.rows("cities") == [{"id": 1, "name": "Ghent"}]
        calm = tmp_path / "calm"
        make(calm, kind)
        with gone_on(calm, kind) as other:
            columns = list(other.rows("windows$panes")[0])
            oracle.same(script.rows("windows$panes"), other.rows("windows$panes"), columns)
        assert_balanced(script.home)


@pytest.mark.parametrize("fixture", FIXTURES)
def test_a_home_of_an_earlier_version_can_be_kept_and_put_back(fixture: Path, tmp_path: Path) -> None:
    path = unpacked(fixture, tmp_path)
    with ms.open(path) as home:
        home.checkpoint("before")
    kind = KINDS[fixture.parent.name]
    gone_on(path, kind).close()
    with ms.open(path) as home:
        checkpoint.restore(home.path, "before")
    with gone_on(path, kind) as script:
        assert sum(r["n"] for r in script.rows("totals")) == sum(len(good(b)) + len(late(b)) for b in range(1, LAST))


def newer_home(path: Path) -> None:
    (path / "millstream.json").write_bytes(orjson.dumps({"format": 99}))


def newer_record(path: Path) -> None:
    record = RecordBook(path / "flows/upgraded/epochs").path(DIED_IN)
    record.write_bytes(orjson.dumps({**orjson.loads(record.read_bytes()), "format": 99, "new": True}))


def newer_run(path: Path) -> None:
    store = DuckStore(path / "store.duckdb")
    store._connection.execute(
        """UPDATE millstream.epochs SET version = replace(version, '{"file"', '{"format":99,"file"')"""
    )
    store.close()


@pytest.mark.parametrize("newer", [newer_home, newer_record, newer_run])
def test_a_home_of_a_later_version_is_refused_untouched(newer: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "home"
    make(path, LocalScript)
    newer(path)
    (path / "lock").unlink()
    before = hashes(path)
    with pytest.raises(HomeTooNew, match="format 99") as caught:
        gone_on(path, LocalScript)
    assert "nothing" in str(caught.value) and "upgrade" in str(caught.value)
    after = hashes(path)
    after.pop("lock", None)
    assert after == before
