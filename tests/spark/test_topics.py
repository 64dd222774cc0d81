"""Topics of the log through Spark: segments and tail, every placement, and taps."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.testing.script import Crash, Script

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("auction", pa.int64()), ("price", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
START = 1767225600_000000


def events(first: int, last: int) -> pa.Table:
    numbers = list(range(first, last))
    times = pa.array([START + n * 1_000 for n in numbers], SCHEMA.field("ts").type)
    return pa.table([pa.array([n % 7 for n in numbers]), pa.array(numbers), times], schema=SCHEMA)


def flow() -> ms.Flow:
    made = ms.Flow("auctions")
    bids = made.source(
        "bids", ms.log("bids"), schema="auction BIGINT, price BIGINT, ts TIMESTAMP", event_time="ts", max_rows=700
    )
    by_auction = bids.key_by("auction").window(ms.tumbling("1 second"))
    by_auction.aggregate(n=ms.count(), paid=ms.sum("price"), last=ms.last("price")).view("sums")
    bids.where("price % 10 = 0").select("auction", "price").sink("tens", ms.log("tens"))
    return made


def expected(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    windows: dict[tuple[int, int], list[int]] = {}
    for row in rows.to_pylist():
        second = int(row["ts"].timestamp())
        windows.setdefault((second, row["auction"]), []).append(row["price"])
    return Counter((s, a, len(prices), sum(prices), prices[-1]) for (s, a), prices in windows.items())


def shown(script: Script) -> Counter[tuple[Any, ...]]:
    return Counter(
        (int(r["window_start"].timestamp()), r["auction"], r["n"], r["paid"], r["last"]) for r in script.rows("sums")
    )


@pytest.mark.parametrize("placement", ["inline", pytest.param("spread", marks=pytest.mark.slow)])
def test_segments_and_tail_give_every_record_once_through_crashes(
    spark: object, tmp_path: Path, placement: str
) -> None:
    with ms.open(tmp_path / "home") as home:
        home.log.create("bids", SCHEMA, partitions=2, segment_rows=400)
    with Script(flow(), tmp_path / "home", placement=placement) as script:
        for first in range(0, 2000, 250):
            script.home.topic("bids").append(events(first, first + 250), partition=first // 250 % 2)
        script.home.topic("bids").close()  # what is being sealed is sealed then
        kinds = {p.path is None for n in (0, 1) for p in script.home.topic("bids").parts(n, 0, 1000)}
        assert kinds == {True, False}, "the slice has sealed segments and a tail"
        script.tick(1)
        script.crash(at="after commit")
        with pytest.raises(Crash):
            script.tick()
        script.resume()
        script.tick()
        assert shown(script) == expected(events(0, 2000))
        assert sorted(r["price"] for r in script.written("tens")) == list(range(0, 2000, 10))


def test_a_damaged_segment_stops_the_flow_and_is_named(spark: object, tmp_path: Path) -> None:
    with ms.open(tmp_path / "home") as home:
        topic = home.log.create("bids", SCHEMA, segment_rows=100)
        for first in range(0, 500, 100):
            topic.append(events(first, first + 100))
    segment = sorted((tmp_path / "home/log/bids").glob("*/*.parquet"))[1]
    data = bytearray(segment.read_bytes())
    data[len(data) // 3] ^= 4
    segment.write_bytes(data)
    with Script(flow(), tmp_path / "home") as script, pytest.raises(ms.MillstreamError) as caught:
        script.tick()
    assert segment.name in str(caught.value)


def test_a_tap_lands_a_spark_stream_in_the_log_once(spark: object, tmp_path: Path) -> None:
    """A batch that Spark gives a second time, after a stop that its checkpoint does not know of, is not taken twice."""
    import json
    import shutil

    folder = tmp_path / "incoming"
    folder.mkdir()
    (folder / "1.json").write_text("\n".join(json.dumps({"value": n}) for n in range(5)))
    made = ms.Flow("tapped")
    source = ms.spark_stream("text", {"path": str(folder)})
    assert "incoming" not in repr(source), "options may hold secrets"
    rows = made.source("lines", source, schema="value STRING")
    rows.aggregate(n=ms.count()).view("counted")
    with ms.open(tmp_path / "home") as home, home.start(made) as run:
        run.wait(lambda r: sum(e.rows for e in r.reports) >= 5, timeout=60)
        assert home.query("SELECT n FROM counted").to_dicts() == [{"n": 5}]
    commits = tmp_path / "home/flows/tapped/taps/lines/commits"
    assert (commits / "0").exists()
    shutil.rmtree(commits)  # as a crash would leave it: landed, but Spark does not know
    (folder / "2.json").write_text('{"value": 7}')
    with ms.open(tmp_path / "home") as home, home.start(made) as run:
        run.wait(lambda r: sum(e.rows for e in r.reports) >= 1, timeout=60)
        assert home.query("SELECT n FROM counted").to_dicts() == [{"n": 6}]
        assert home.topic("tapped_lines").end() == {0: 6}
