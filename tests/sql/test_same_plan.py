"""What SQL says and what Python says are one flow: the same stages, the same fingerprints, the same explanation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import millstream as ms
from millstream.plan.plan import Plan
from millstream.plan.planner import plan
from tests.sql import kit

SCHEMA = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, tags ARRAY<STRING>, ts TIMESTAMP"
TEN = ms.tumbling("10 seconds")
TUMBLE = "TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
BY_WINDOW = (
    f"SELECT window_start, window_end, auction, count(*) AS n FROM {TUMBLE} GROUP BY window_start, window_end, auction"
)

Build = Callable[[ms.Stream], ms.Stream]


def windowed(**how: object) -> Build:
    return lambda bids: bids.key_by("auction").window(TEN, **how).aggregate(n=ms.count())  # type: ignore[arg-type]


PAIRS: dict[str, tuple[str, Build]] = {
    "all rows": ("SELECT * FROM bids", lambda b: b),
    "where": ("SELECT * FROM bids WHERE price > 100", lambda b: b.where("price > 100")),
    "two conditions": (
        "SELECT * FROM bids WHERE price > 100 AND channel = 'web'",
        lambda b: b.where("price > 100").where("channel = 'web'"),
    ),
    "select": (
        "SELECT auction, price * 0.908 AS euros FROM bids",
        lambda b: b.select("auction", euros="price * 0.908"),
    ),
    "where and select": (
        "SELECT auction, upper(channel) AS c FROM bids WHERE price BETWEEN 1 AND 5",
        lambda b: b.where("price BETWEEN 1 AND 5").select("auction", c="upper(channel)"),
    ),
    "a subquery": (
        "SELECT a FROM (SELECT auction AS a, price AS p FROM bids) WHERE p > 1",
        lambda b: b.select(a="auction", p="price").where("p > 1").select("a"),
    ),
    "case": (
        "SELECT CASE WHEN price > 1 THEN 'x' ELSE 'y' END AS k FROM bids",
        lambda b: b.select(k="CASE WHEN price > 1 THEN 'x' ELSE 'y' END"),
    ),
    "flat_map": (
        "SELECT auction, tag FROM bids LATERAL VIEW explode(tags) t AS tag",
        lambda b: b.flat_map(tag="tags").select("auction", "tag"),
    ),
    "flat_map that keeps empty ones": (
        "SELECT auction, tag FROM bids LATERAL VIEW OUTER explode(tags) t AS tag",
        lambda b: b.flat_map(keep_empty=True, tag="tags").select("auction", "tag"),
    ),
    "union": (
        "SELECT auction AS id FROM bids UNION ALL SELECT bidder FROM bids",
        lambda b: b.select(id="auction").union(b.select(id="bidder")),
    ),
    "distinct": ("SELECT DISTINCT channel FROM bids", lambda b: b.select("channel").distinct()),
    "union of distinct rows": (
        "SELECT auction AS id FROM bids UNION SELECT bidder FROM bids",
        lambda b: b.select(id="auction").union(b.select(id="bidder")).distinct(),
    ),
    "count": ("SELECT count(*) AS n FROM bids", lambda b: b.aggregate(n=ms.count())),
    "count per key": (
        "SELECT auction, count(*) AS n FROM bids GROUP BY auction",
        lambda b: b.key_by("auction").aggregate(n=ms.count()),
    ),
    "all aggregates": (
        "SELECT auction, count(price) AS c, sum(price) AS s, avg(price) AS a, min(price) AS lo, max(price) AS hi, "
        "first(bidder) AS f, last(bidder) AS l, count(DISTINCT bidder) AS d, variance(price) AS v, "
        "stddev(price) AS sd, collect_list(price) AS p FROM bids GROUP BY auction",
        lambda b: b.key_by("auction").aggregate(
            c=ms.count("price"),
            s=ms.sum("price"),
            a=ms.avg("price"),
            lo=ms.min("price"),
            hi=ms.max("price"),
            f=ms.first("bidder"),
            l=ms.last("bidder"),
            d=ms.count_distinct("bidder"),
            v=ms.variance("price"),
            sd=ms.stddev("price"),
            p=ms.collect("price"),
        ),
    ),
    "a computed key": (
        "SELECT auction % 2 AS odd, count(*) AS n FROM bids GROUP BY odd",
        lambda b: b.key_by(odd="auction % 2").aggregate(n=ms.count()),
    ),
    "filter": (
        "SELECT auction, sum(price) FILTER (WHERE channel = 'web') AS s FROM bids GROUP BY auction",
        lambda b: b.key_by("auction").aggregate(s=ms.sum("CASE WHEN channel = 'web' THEN price END")),
    ),
    "having": (
        "SELECT auction, count(*) AS n FROM bids GROUP BY auction HAVING count(*) > 5",
        lambda b: b.key_by("auction").aggregate(n=ms.count()).where("n > 5"),
    ),
    "select behind an aggregate": (
        "SELECT auction, max(price) - min(price) AS spread FROM bids GROUP BY auction",
        lambda b: (
            b.key_by("auction")
            .aggregate(max_price=ms.max("price"), min_price=ms.min("price"))
            .select("auction", spread="max_price - min_price")
        ),
    ),
    "tumbling": (BY_WINDOW, windowed()),
    "tumbling in GROUP BY": (
        "SELECT TUMBLE_START(ts, INTERVAL '10' SECOND) AS window_start, TUMBLE_END(ts, INTERVAL '10' SECOND) AS "
        "window_end, auction, count(*) AS n FROM bids GROUP BY auction, TUMBLE(ts, INTERVAL '10' SECOND)",
        windowed(),
    ),
    "tumbling as Spark says it": (
        "SELECT window.start AS window_start, window.end AS window_end, auction, count(*) AS n FROM bids "
        "GROUP BY window(ts, '10 seconds'), auction",
        windowed(),
    ),
    "hopping": (
        "SELECT window_start, window_end, count(*) AS n FROM HOP(bids, ts, '5 seconds', '1 minute') "
        "GROUP BY window_start, window_end",
        lambda b: b.window(ms.hopping("1 minute", "5 seconds")).aggregate(n=ms.count()),
    ),
    "cumulating": (
        "SELECT window_start, window_end, count(*) AS n FROM CUMULATE(bids, ts, '1 hour', '1 day') "
        "GROUP BY window_start, window_end",
        lambda b: b.window(ms.cumulating("1 hour", "1 day")).aggregate(n=ms.count()),
    ),
    "session": (
        "SELECT window_start, window_end, bidder, count(*) AS n FROM TABLE(SESSION(TABLE bids PARTITION BY bidder, "
        "DESCRIPTOR(ts), INTERVAL '5' MINUTE)) GROUP BY window_start, window_end, bidder",
        lambda b: b.key_by("bidder").window(ms.session("5 minutes")).aggregate(n=ms.count()),
    ),
    "count window": (
        "SELECT window_index, window_start, window_end, auction, count(*) AS n FROM TABLE(COUNT_WINDOW(TABLE bids, "
        "10)) GROUP BY window_index, window_start, window_end, auction",
        lambda b: b.key_by("auction").window(ms.count_window(10)).aggregate(n=ms.count()),
    ),
    "calendar": (
        "SELECT window_start, window_end, count(*) AS n FROM TABLE(CALENDAR(TABLE bids, DESCRIPTOR(ts), 'month', "
        "'Europe/Berlin')) GROUP BY window_start, window_end",
        lambda b: b.window(ms.calendar("month", zone="Europe/Berlin")).aggregate(n=ms.count()),
    ),
    "on close": (f"{BY_WINDOW} EMIT ON CLOSE", windowed(trigger=ms.on_close())),
    "early, late, lateness": (
        f"{BY_WINDOW} EMIT ON CLOSE EARLY EVERY INTERVAL '1' SECOND LATE EVERY 10 ROWS ACCUMULATING "
        "ALLOWED LATENESS INTERVAL '1' MINUTE",
        windowed(
            trigger=ms.after_watermark(early=ms.every("1 second"), late=ms.repeatedly(ms.after_count(10))),
            accumulation=ms.accumulating(),
            lateness="1 minute",
        ),
    ),
    "any of and until": (
        f"{BY_WINDOW} EMIT (ANY OF (EVERY 5 ROWS, EVERY INTERVAL '1' SECOND ALIGNED)) UNTIL ON CLOSE DISCARDING",
        windowed(
            trigger=ms.until(
                ms.any_of(ms.repeatedly(ms.after_count(5)), ms.every("1 second", aligned=True)), ms.on_close()
            ),
            accumulation=ms.discarding(),
        ),
    ),
    "groups of groups": (
        "SELECT n, count(*) AS auctions FROM (SELECT auction, count(*) AS n FROM bids GROUP BY auction) GROUP BY n",
        lambda b: b.key_by("auction").aggregate(n=ms.count()).key_by("n").aggregate(auctions=ms.count()),
    ),
    "top": (
        "SELECT auction, price FROM bids ORDER BY price DESC LIMIT 3",
        lambda b: b.select("auction", "price").top(3, "price DESC"),
    ),
    "top per key with its place": (
        "SELECT * FROM (SELECT auction, price, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place "
        "FROM (SELECT auction, price FROM bids)) WHERE place <= 3",
        lambda b: b.select("auction", "price").key_by("auction").top(3, "price DESC", rank="place"),
    ),
}


def of_python(build: Build) -> Plan:
    flow = ms.Flow("f")
    bids = flow.source("bids", ms.log("bids"), schema=SCHEMA, event_time="ts", lateness="4 seconds")
    build(bids).view("v")
    return plan(flow)


def test_there_are_enough_pairs() -> None:
    assert len(PAIRS) >= 25


@pytest.mark.parametrize("name", PAIRS)
def test_sql_and_python_give_the_same_plan(name: str) -> None:
    query, build = PAIRS[name]
    said, built = kit.view_plan(query), of_python(build)
    assert kit.told(said) == kit.told(built)
    assert [v.fingerprint for v in said.views] == [v.fingerprint for v in built.views]


def test_another_condition_is_another_plan() -> None:
    one, other = kit.view_plan("SELECT * FROM bids WHERE price > 1"), of_python(lambda b: b.where("price > 2"))
    assert one.views[0].fingerprint != other.views[0].fingerprint
