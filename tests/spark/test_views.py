"""Views against the batch oracle: every step, window and aggregate, through Spark, in every placement."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.testing import Script
from tests.oracle import batch, same

pytestmark = pytest.mark.spark

SCHEMA = "auction BIGINT, price BIGINT, weight DOUBLE, amount DECIMAL(10, 2), channel STRING, ts TIMESTAMP"
PLACEMENTS = ("inline", "combined", "gathered", "spread")


def rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows with repeats, NULLs, ties and disorder of up to two seconds."""
    made = []
    for i in range(count):
        n = (i * 7919 + seed * 104729) % 10007
        made.append(
            {
                "auction": None if n % 31 == 0 else n % 5,
                "price": None if n % 17 == 0 else n % 97 - 20,
                "weight": None if n % 13 == 0 else n / 7.0,
                "amount": None if n % 11 == 0 else Decimal(n % 500) + Decimal(n % 100) / 100,
                "channel": None if n % 19 == 0 else f"c{n % 3}",
                "ts": 1767225600 + i // 3 - (n % 3),
            }
        )
    return made


def table(records: list[dict[str, Any]]) -> pa.Table:
    """The same rows for the oracle, with their position."""
    schema = pa.schema(
        [
            ("auction", pa.int64()),
            ("price", pa.int64()),
            ("weight", pa.float64()),
            ("amount", pa.decimal128(10, 2)),
            ("channel", pa.string()),
            ("ts", pa.timestamp("us", tz="UTC")),
            ("pos", pa.int64()),
        ]
    )
    placed = [{**r, "ts": r["ts"] * 1_000_000, "pos": i} for i, r in enumerate(records)]
    return pa.Table.from_pylist(placed, schema=schema)


class Longest:
    """A user aggregate: the longest text, the first of those as long."""

    def create(self) -> str:
        return ""

    def add(self, longest: str, value: str) -> str:
        return value if len(value) > len(longest) else longest

    def merge(self, left: str, right: str) -> str:
        return right if len(right) > len(left) else left

    def result(self, longest: str) -> str:
        return longest


def house() -> tuple[ms.Flow, Any]:
    flow = ms.Flow("house")
    bids = flow.source("bids", ms.memory(), schema=SCHEMA, event_time="ts", lateness="1 hour")
    return flow, bids


ALL = {
    "n": ms.count(),
    "np": ms.count("price"),
    "s": ms.sum("price"),
    "sw": ms.sum("weight"),
    "sa": ms.sum("amount"),
    "lo": ms.min("price"),
    "hi": ms.max("channel"),
    "mean": ms.avg("price"),
    "var": ms.variance("price"),
    "sd": ms.stddev("weight"),
    "d": ms.count_distinct("channel"),
    "f": ms.first("price"),
    "l": ms.last("price"),
    "all_prices": ms.collect("price"),
    "long": ms.user_aggregate(Longest(), "channel", returns="STRING"),
}
# all channels are equally long, so the longest is the first
ALL_SQL = """
    count(*) n, count(price) np, sum(price) s, sum(weight) sw, sum(amount) sa, min(price) lo, max(channel) hi,
    avg(price) mean, var_samp(price) var, stddev_samp(weight) sd, count(DISTINCT channel) d,
    arg_min_null(price, (ts, pos)) f, arg_max_null(price, (ts, pos)) l,
    coalesce(list(price ORDER BY ts, pos) FILTER (price IS NOT NULL), []) all_prices,
    coalesce(first(channel ORDER BY ts, pos) FILTER (channel IS NOT NULL), '') long
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("size", [None, 20])
def test_every_aggregate_equals_the_batch_answer(
    spark: object, tmp_path: Path, placement: str, size: int | None
) -> None:
    flow, bids = house()
    keyed = bids.key_by("auction")
    windowed = keyed.window(ms.tumbling(f"{size} seconds")) if size else keyed
    windowed.aggregate(**ALL).view("v")
    data = rows(300)
    with Script(flow, tmp_path, placement=placement) as script:
        for start in range(0, 300, 100):
            script.send("bids", *data[start : start + 100])
            script.tick()
        found = script.rows("v")
    slot = f"time_bucket(INTERVAL '{size} seconds', ts)" if size else "1"
    sql = f"SELECT auction, {slot} AS slot, {ALL_SQL} FROM t GROUP BY 1, 2"
    columns = ["auction", *ALL]
    expected = batch(sql, t=table(data))
    if size:
        found = [{**r, "slot": r["window_start"]} for r in found]
        columns.append("slot")
    same(found, expected, columns)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize(("size", "slide"), [(20, 5), (10, 4)])
@pytest.mark.parametrize("close", [False, True])
def test_hopping_windows_equal_the_batch_answer(
    spark: object, tmp_path: Path, placement: str, size: int, slide: int, close: bool
) -> None:
    flow = ms.Flow("house")
    bids = flow.source("bids", ms.memory(), schema=SCHEMA, event_time="ts", lateness="3 seconds")
    trigger = ms.on_close() if close else ms.on_change()
    (
        bids.key_by("channel")
        .window(ms.hopping(f"{size} seconds", f"{slide} seconds"), trigger=trigger)
        .aggregate(n=ms.count(), s=ms.sum("price"), w=ms.sum("weight"), hi=ms.max("price"))
        .view("v")
    )
    data = rows(240)
    with Script(flow, tmp_path, placement=placement) as script:
        for start in range(0, 240, 60):
            script.send("bids", *data[start : start + 60])
            script.tick()
        script.send("bids", {"channel": "end", "ts": 1767225600 + 10_000})
        script.advance("3 hours").tick()
        found = [r for r in script.rows("v") if r["channel"] != "end"]
        assert script.rows("v$late") == []
    sql = f"""
        SELECT to_timestamp(e) AS window_end, channel, count(*) n, sum(price) s, sum(weight) w, max(price) hi
        FROM t, range(1767225600 - 100, 1767225600 + 400) r(e)
        WHERE (e - {size}) % {slide} = 0 AND epoch(ts) >= e - {size} AND epoch(ts) < e
        GROUP BY ALL"""
    same(found, batch(sql, t=table(data)), ["window_end", "channel", "n", "s", "w", "hi"])


def test_stateless_steps_feed_several_views_from_one_source(spark: object, tmp_path: Path) -> None:
    flow, bids = house()
    bids.where("price > 0").select("auction", double="price * 2").view("doubled")
    priced = bids.with_columns(price="coalesce(price, 0)")
    priced.key_by(parity="auction % 2").aggregate(s=ms.sum("price")).view("by_parity")
    bids.flat_map(part="array(price, price + 1)").key_by("part").aggregate(n=ms.count()).view("parts")
    bids.key_by("auction").aggregate(n=ms.count()).where("n > 10").select("auction", tenfold="n * 10").view("busy")
    bids.key_by("auction").aggregate(n=ms.count(), s=ms.sum("price")).select("n").view("without_key")
    data = rows(120)
    with Script(flow, tmp_path) as script:
        for start in range(0, 120, 40):
            script.send("bids", *data[start : start + 40])
            script.tick()
        t = table(data)
        cases = {
            "doubled": "SELECT auction, price * 2 AS double FROM t WHERE price > 0",
            "by_parity": "SELECT auction % 2 AS parity, sum(coalesce(price, 0)) s FROM t GROUP BY 1",
            "parts": "SELECT part, count(*) n FROM (SELECT unnest([price, price + 1]) part FROM t) GROUP BY 1",
            "busy": "SELECT auction, count(*) * 10 AS tenfold FROM t GROUP BY 1 HAVING count(*) > 10",
            "without_key": "SELECT count(*) n FROM t GROUP BY auction",
        }
        for view, sql in cases.items():
            expected = batch(sql, t=t)
            same(script.rows(view), expected, list(expected[0]))


def test_union_map_batches_and_enrich(spark: object, tmp_path: Path) -> None:
    def tagged(batch: pa.Table) -> pa.Table:
        kept = batch.filter(pa.compute.greater(batch["price"], 0))
        return kept.append_column("tag", pa.array([f"t{p}" for p in kept["price"].to_pylist()], pa.string()))

    flow = ms.Flow("joined")
    columns = "auction BIGINT, price BIGINT, ts TIMESTAMP"
    a = flow.source("a", ms.memory(), schema=columns, event_time="ts")
    b = flow.source("b", ms.memory(), schema=columns, event_time="ts")
    both = a.union(b.where("price <> 3"))
    counts = both.key_by("auction").aggregate(n=ms.count(), s=ms.sum("price"))
    counts.view("both")
    only_spark_knows = b.select(k="pmod(auction, 2)", none="NULL")
    numbers = a.select(k="CAST(auction AS INT)", none="auction").union(only_spark_knows)
    numbers.key_by("k").aggregate(n=ms.count(), none=ms.count("none")).view("widened")
    counts.select(k="CAST(n AS INT)", none="n").union(only_spark_knows).distinct().view("widened_once")
    a.map_batches(tagged, schema=columns + ", tag STRING").key_by("tag").aggregate(n=ms.count()).view("tags")
    a.enrich("names", on="auction", columns="name STRING").key_by("name").aggregate(n=ms.count()).view("named")
    a.enrich("names", on={"auction": "auction"}, columns="name STRING", required=True).select("name").view("known")
    with ms.open(tmp_path) as home:
        home.put_table("names", [{"auction": 1, "name": "one"}, {"auction": 2, "name": "two"}])
    with Script(flow, tmp_path) as script:
        for i in range(4):
            script.send("a", {"auction": i, "price": i - 1, "ts": 1767225600 + i})
            script.send("b", {"auction": i, "price": i, "ts": 1767225600 + i})
            script.tick()
        expected = [{"auction": i, "n": 2 if i != 3 else 1, "s": (i - 1) + (i if i != 3 else 0)} for i in range(4)]
        script.expect_rows("both", *expected)
        script.expect_rows("widened", *({"k": k, "n": n, "none": 1} for k, n in enumerate([3, 3, 1, 1])))
        once = [(0, None), (1, None), (1, 1), (2, 2)]
        script.expect_rows("widened_once", *({"k": k, "none": none} for k, none in once))
        script.expect_rows("tags", {"tag": "t1", "n": 1}, {"tag": "t2", "n": 1})
        script.expect_rows("named", {"name": None, "n": 2}, {"name": "one", "n": 1}, {"name": "two", "n": 1})
        script.expect_rows("known", {"name": "one"}, {"name": "two"})


def reciprocal(value: int) -> float:
    return 1 / value


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_condition_guards_the_expressions_beside_it(spark: object, tmp_path: Path, placement: str) -> None:
    flow, bids = house()
    kept = bids.where("price <> 0")
    kept.select(x="100 / price").view("v")
    kept.key_by(k="100 / price").aggregate(s=ms.sum("50 / price"), n=ms.count()).view("w")
    bids.where("price > 1").select(x="100 / (price - 1)").view("u")
    data = [{"price": p, "ts": 1767225600 + i} for i, p in enumerate([0, 1, 2, None, 4, -4, 4])]
    with Script(flow, tmp_path, placement=placement) as script:
        script.send("bids", *data)
        script.tick()
        assert sorted(r["x"] for r in script.rows("v")) == [-25, 25, 25, 50, 100]
        groups = sorted((r["k"], r["s"], r["n"]) for r in script.rows("w"))
        assert groups == [(-25, -12.5, 1), (25, 25, 2), (50, 25, 1), (100, 50, 1)]
        assert len(script.rows("u")) == 3


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_struct_of_values_that_are_never_null_is_not_computed_where_a_condition_fails(
    spark: object, tmp_path: Path, placement: str
) -> None:
    flow, bids = house()
    kept = bids.where("price > 1")
    kept.select(pair="struct(1 AS one, price)").view("pairs")
    kept.key_by("auction").aggregate(newest=ms.last("struct(true AS sure, price)")).view("newest")
    kept.key_by("auction").aggregate(n=ms.count()).select(
        "auction", pair="CASE WHEN n > 1 THEN named_struct('one', 1, 'n', n) END"
    ).view("after")
    data = [{"auction": p % 2, "price": p, "ts": 1767225600 + p} for p in range(5)]
    with Script(flow, tmp_path, placement=placement) as script:
        script.send("bids", *data)
        script.tick()
        assert sorted(r["pair"]["price"] for r in script.rows("pairs")) == [2, 3, 4]
        assert {r["auction"]: r["newest"]["price"] for r in script.rows("newest")} == {0: 4, 1: 3}
        assert {r["auction"]: r["pair"] for r in script.rows("after")} == {0: {"one": 1, "n": 2}, 1: None}


def test_a_condition_guards_calls_of_python_functions(spark: object, tmp_path: Path) -> None:
    with ms.open(tmp_path / "home") as home:
        home.topic("t", schema="a BIGINT").append([{"a": a} for a in (0, 1, 2, None)])
        session = home.session()
        for sql in (
            "CREATE SOURCE t (a BIGINT) FROM LOG('t')",
            f"CREATE FUNCTION reciprocal AS '{__name__}:reciprocal' RETURNS DOUBLE",
            "CREATE VIEW v AS SELECT a, reciprocal(a) AS x FROM t WHERE a <> 0",
        ):
            list(session.execute(sql))
        session.written.add("t")
        session.settings["wait"] = 300
        session.settle()
        assert sorted(home.query("SELECT a, x FROM v").to_dicts(), key=repr) == [{"a": 1, "x": 1.0}, {"a": 2, "x": 0.5}]
        assert home.query("SELECT * FROM t$errors").to_dicts() == []
