"""Patterns on Spark: conditions and measures computed natively, epochs that die,; a plain search says what is right."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.testing import Script
from millstream.testing.script import Crash
from tests.accounting import assert_balanced

pytestmark = pytest.mark.spark

SCHEMA = "auction BIGINT, price BIGINT, name STRING, paid DECIMAL(10, 2), ts TIMESTAMP"
BASE = 1_767_225_600

SQL = """CREATE SOURCE bids (auction BIGINT, price BIGINT, name STRING, paid DECIMAL(10, 2), ts TIMESTAMP,
    WATERMARK FOR ts AS ts - INTERVAL '4' SECOND) FROM LOG('bids');
CREATE VIEW falls AS SELECT auction, was, low, upper(who) AS who, num FROM bids MATCH_RECOGNIZE (
    PARTITION BY auction ORDER BY ts
    MEASURES a.price AS was, LAST(down.price) AS low, FIRST(down.name) AS who, MATCH_NUMBER() AS num
    PATTERN (a down+ up)
    DEFINE down AS price < PREV(price), up AS price > PREV(price))
"""


def rows(count: int) -> list[dict[str, Any]]:
    made = []
    for i in range(count):
        n = (i * 7919) % 10007
        price = None if n % 41 == 0 else n % 23
        made.append({"auction": n % 3, "price": price, "name": f"n{n % 4}", "paid": Decimal("1.10"), "ts": BASE + i})
    return made


def falls(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every row, then rows that fall as long as they do, then one that rises; row by row, over all rows at once."""
    found = []
    for auction in sorted({r["auction"] for r in records}):
        mine = [r for r in records if r["auction"] == auction]
        at, number = 0, 0
        while at < len(mine):
            end = at + 1
            while end < len(mine) and _less(mine[end]["price"], mine[end - 1]["price"]):
                end += 1
            if end > at + 1 and end < len(mine) and _less(mine[end - 1]["price"], mine[end]["price"]):
                number += 1
                who = mine[at + 1]["name"].upper()
                low = mine[end - 1]["price"]
                found.append({"auction": auction, "was": mine[at]["price"], "low": low, "who": who, "num": number})
                at = end + 1
            else:
                at += 1
    return found


def _less(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a < b


def flow_of() -> ms.Flow:
    flow = ms.Flow("house")
    bids = flow.source("bids", ms.memory(), schema=SCHEMA, event_time="ts", lateness="4 seconds")
    down = ms.pattern().then("a").then("down", "price < prev(price)", times=(1, None)).then("up", "price > prev(price)")
    found = bids.key_by("auction").match(
        down, was="a.price", low="last(down.price)", who="upper(first(down.name))", num="match_number()"
    )
    found.view("falls")
    slow = ms.pattern().then("a", "price > 20").followed_by("b", "b.price < a.price / 10 and name <> 'n1'")
    waited = bids.key_by("auction").match(
        slow.within("20 seconds"), timeouts=True, was="a.price", now="b.price", paid="sum(paid) + 1"
    )
    waited.view("waited")
    return flow


def by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda r: (r["auction"], r["num"]))


def test_matches_equal_those_of_a_plain_search_also_when_epochs_die(spark: object, tmp_path: Path) -> None:
    records = rows(160)
    with Script(flow_of(), tmp_path) as script:
        script.send("bids", *records[:70]).tick()
        script.send("bids", *records[70:110]).crash(at="before commit")
        with pytest.raises(Crash):
            script.tick()
        script.resume()
        script.send("bids", *records[110:]).end("bids").tick()
        assert by_key(script.rows("falls")) == falls(records)
        waited = script.rows("waited")
        assert_balanced(script.home)
    assert {r["timed_out"] for r in waited} == {True, False}
    for row in waited:
        assert (row["now"] is None) is row["timed_out"]
        assert row["timed_out"] or row["now"] * 10 < row["was"]
        assert row["paid"] >= Decimal("2.10")


def test_match_recognize_runs_on_spark(spark: object, tmp_path: Path) -> None:
    records = rows(90)
    ends = {"auction": 9, "price": 1, "name": "end", "paid": None, "ts": BASE + 1_000}
    with ms.open(tmp_path / "home") as home:
        topic = home.topic("bids", schema=SCHEMA)
        home.sql(SQL)
        topic.append([{**r, "ts": datetime.fromtimestamp(r["ts"], UTC)} for r in (*records, ends)])
        session = home.session()
        session.written.add("bids")
        session.settings["wait"] = 300
        session.settle()
        assert by_key(home.query("SELECT * FROM falls").to_dicts()) == falls(records)
