"""A disk that is really full: a small file system of its own holds the home, and grows when the test says so."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.connect.nexmark import Nexmark, events
from millstream.reader import Reader
from tests.oracle import batch, same

from .conftest import Processes

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EVENTS = 200_000
FILLING_FLOW = f"""
import millstream as ms
flow = ms.Flow("filling")
bids = flow.source("bids", ms.nexmark("bid", events={EVENTS}), event_time="date_time", max_rows=20_000)
bids.view("all_bids")
bids.aggregate(bids=ms.count(), volume=ms.sum("price")).view("total")
bids.key_by("auction").window(ms.tumbling("1 second")).aggregate(bids=ms.count()).view("per_auction")
bids.key_by("bidder").aggregate(bids=ms.count(), top=ms.max("price")).view("per_bidder")
"""


class Disk:
    """A file system in memory that is as large as is said."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resize(self, size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(path)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no `mount` here")
    if done.returncode != 0:
        pytest.skip(f"a file system may not be mounted here: {done.stderr.strip()}")
    yield Disk(path)
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_full_disk_stops_a_flow_which_goes_on_when_there_is_space(
    millstream: Processes, disk: Disk, tmp_path: Path
) -> None:
    (tmp_path / "flow.py").write_text(FILLING_FLOW, encoding="utf-8")
    wanted = events("bid", 0, EVENTS, Nexmark())

    full(millstream, disk)  # before the store is made
    disk.resize("24m")
    full(millstream, disk)  # in the middle of the work
    between = total(disk)
    assert 0 < between < wanted.num_rows
    full(millstream, disk)  # before the first epoch of a later start
    assert total(disk) == between

    disk.resize("256m")
    done = millstream.run("run", "flow.py", "--home", disk.path)
    assert done.returncode == 0, done.stderr
    assert "finished: everything was read" in done.stdout
    with Reader(disk.path) as reader:
        assert sorted_rows(reader.query("SELECT * FROM all_bids").to_arrow(), wanted.schema) == sorted_rows(wanted)
        for view, sql in {
            "total": "SELECT count(*) bids, sum(price) volume FROM t",
            "per_auction": "SELECT time_bucket(INTERVAL '1 second', date_time) window_start, auction, count(*) bids "
            "FROM t GROUP BY ALL",
            "per_bidder": "SELECT bidder, count(*) bids, max(price) top FROM t GROUP BY ALL",
        }.items():
            expected = batch(sql, t=wanted)
            same(reader.query(f"SELECT * FROM {view}").to_dicts(), expected, list(expected[0]))


def full(millstream: Processes, disk: Disk) -> None:
    """A run ends with one message about the disk."""
    done = millstream.run("run", "flow.py", "--home", disk.path)
    assert done.returncode == 5, (done.stdout, done.stderr)
    assert "error: no space left" in done.stderr
    assert "hint: free some space" in done.stderr
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr


def total(disk: Disk) -> int:
    """How many bids are counted; also the views of a full disk can be read, and they agree."""
    with Reader(disk.path) as reader:
        (row,) = reader.query(
            "SELECT bids, (SELECT count(*) FROM all_bids) AS kept, (SELECT sum(bids) FROM per_bidder) AS by_bidder "
            "FROM total"
        ).to_dicts()
    assert row["kept"] == row["by_bidder"] == row["bids"]
    return int(row["bids"])


def sorted_rows(table: pa.Table, schema: pa.Schema | None = None) -> pa.Table:
    table = table.cast(schema) if schema is not None else table
    return table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()
