"""Chained stages on Spark: expressions between them, and every placement of the first stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.testing import Script
from tests.accounting import assert_balanced
from tests.oracle import batch, same

pytestmark = pytest.mark.spark

SCHEMA = "auction BIGINT, bidder BIGINT, price BIGINT, name STRING, ts TIMESTAMP"
BASE = 1_767_225_600


def rows(count: int) -> list[dict[str, Any]]:
    made = []
    for i in range(count):
        n = (i * 7919) % 10007
        made.append(
            {
                "auction": None if n % 31 == 0 else n % 5,
                "bidder": n % 7,
                "price": None if n % 17 == 0 else n % 97,
                "name": f"n{n % 4}",
                "ts": BASE + i // 3,
            }
        )
    return made


def table(records: list[dict[str, Any]]) -> pa.Table:
    kinds = [("auction", pa.int64()), ("bidder", pa.int64()), ("price", pa.int64()), ("name", pa.string())]
    schema = pa.schema([*kinds, ("ts", pa.timestamp("us", tz="UTC"))])
    return pa.Table.from_pylist([{**r, "ts": r["ts"] * 1_000_000} for r in records], schema=schema)


_PER = "(SELECT auction, bidder, count(*) AS n, sum(price) AS s FROM bids GROUP BY ALL)"
_BEST = (
    f"(SELECT * FROM (SELECT *, auction % 2 = 0 AS even FROM {_PER} WHERE n > 2) QUALIFY row_number() OVER "
    "(PARTITION BY even ORDER BY s % 10 DESC NULLS LAST, auction NULLS FIRST, bidder) <= 3)"
)
SQL = {
    "best": f"SELECT *, row_number() OVER (PARTITION BY even ORDER BY s % 10 DESC NULLS LAST, auction NULLS FIRST, "
    f"bidder) AS r FROM {_BEST}",
    "doubled": f"SELECT coalesce(auction, -1) % 2 AS side, sum(s * 2) AS t, count(*) AS c FROM {_BEST} GROUP BY 1 "
    "HAVING count(*) > 1",
    "names": "SELECT DISTINCT upper(name) AS name FROM bids WHERE price > 50",
    "latest": "SELECT bidder, price + 1 AS more FROM bids QUALIFY row_number() OVER (PARTITION BY bidder ORDER BY "
    "ts DESC, auction NULLS FIRST, price NULLS FIRST, name) = 1",
}


def house() -> ms.Flow:
    flow = ms.Flow("house")
    bids = flow.source("bids", ms.memory(), schema=SCHEMA, event_time="ts", lateness="1 hour")
    per = bids.key_by("auction", "bidder").aggregate(n=ms.count(), s=ms.sum("price")).where("n > 2")
    best = per.key_by(even="auction % 2 = 0")
    best.top(3, "s % 10 DESC", rank="r").view("best")
    doubled = best.top(3, "s % 10 DESC").with_columns(auction="coalesce(auction, -1)")
    doubled.key_by(side="auction % 2").aggregate(t=ms.sum("s * 2"), c=ms.count()).where("c > 1").view("doubled")
    bids.where("price > 50").select(name="upper(name)").distinct().view("names")
    bids.key_by("bidder").top(1, "ts DESC").select("bidder", more="price + 1").view("latest")
    return flow


@pytest.mark.parametrize("placement", ["inline", "spread"])
def test_chains_with_expressions_equal_a_batch_in_every_placement(
    spark: object, tmp_path: Path, placement: str
) -> None:
    records = rows(200)
    with Script(house(), tmp_path, placement=placement) as script:
        for start, end in ((0, 120), (120, 200)):
            script.send("bids", *records[start:end]).tick()
            for view, sql in SQL.items():
                expected = batch(sql, bids=table(records[:end]))
                found = script.rows(view)
                same(found, expected, list(found[0]))
        assert_balanced(script.home)


def test_late_rows_of_a_window_inside_a_chain_belong_to_the_view_at_its_end(spark: object, tmp_path: Path) -> None:
    flow = ms.Flow("house")
    bids = flow.source("bids", ms.memory(), schema=SCHEMA, event_time="ts")
    counts = bids.key_by("auction").window(ms.tumbling("10 seconds")).aggregate(n=ms.count())
    counts.key_by("window_end").top(1, "n DESC").view("hottest", retention="1 hour")
    with Script(flow, tmp_path) as script:
        record = {"auction": 1, "bidder": 1, "price": 1, "name": "a"}
        script.send("bids", {**record, "ts": BASE + 30}).tick()
        script.send("bids", {**record, "ts": BASE + 1}, {**record, "ts": BASE + 31}).tick()
        script.expect_rows("hottest", {"auction": 1, "n": 2})
        assert [r["reason"] for r in script.rows("hottest$late")] == ["behind the watermark"]
        assert_balanced(script.home)
