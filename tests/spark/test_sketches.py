"""Sketches on Spark: the same state and answers in every placement, natively combined or not, and Spark reads ours."""

from __future__ import annotations

import statistics
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import millstream as ms
from millstream.engine.input.combine import fits
from millstream.kernels.aggregates.combine import combine, fold
from millstream.kernels.aggregates.hyperloglog import estimate
from millstream.kernels.scan_input import Role
from millstream.model.windows.windowing import Windowing
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.parts import Measure
from millstream.plan.planner import plan
from millstream.testing import Script

pytestmark = pytest.mark.spark

SCHEMA = "k BIGINT, x BIGINT, f DOUBLE, d DECIMAL(10, 2), s STRING, ts TIMESTAMP"
NATIVE = {
    "n": ms.count(),
    "distinct": ms.approx_count_distinct("x", 8),
    "texts": ms.approx_count_distinct("s"),
    "best": ms.max_by("s", "f"),
    "worst": ms.min_by("s", "f"),
    "all_of": ms.bool_and("x >= 0"),
    "some_of": ms.bool_or("x > 500"),
}
OTHERS = {
    "middle": ms.median("x"),
    "quarters": ms.percentile("f", [0.25, 0.75]),
    "discrete": ms.percentile_disc("d", 0.9),
    "about": ms.approx_percentile("f", [0.0, 0.5, 0.99], 64),
    "decimal": ms.approx_percentile("d", 0.5, 32),
    "whole": ms.approx_percentile("x", 0.5, 32),
    "frequent": ms.approx_top_k("x", 3, 16),
    "texts": ms.approx_top_k("s", 2),
    "squares": ms.approx_f2("s", 64),
    "some": ms.sample("x", 5),
    "set_of": ms.collect_set("s"),
    "usual": ms.mode("s"),
    "distinct": ms.approx_count_distinct("f"),
}


def records(count: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for i in range(count):
        n = (i * 7919) % 10007
        made.append(
            {
                "k": n % 3,
                "x": None if n % 17 == 0 else n % 1000,
                "f": None if n % 13 == 0 else (n % 701) / 7 - 20,
                "d": Decimal(n % 33301) / 100,
                "s": None if n % 11 == 0 else f"s{n % 40}",
                "ts": 1_767_225_600 + i // 50,
            }
        )
    return made


def flow(aggregates: dict[str, Any]) -> ms.Flow:
    made = ms.Flow("f")
    stream = made.source("rows", ms.memory(), schema=SCHEMA, event_time="ts", lateness="1 hour")
    stream.key_by("k").window(ms.hopping("20 seconds", "10 seconds")).aggregate(**aggregates).view("v")
    return made


def answers(path: Path, aggregates: dict[str, Any], placement: str) -> list[dict[str, Any]]:
    sent = records(3000)
    with Script(flow(aggregates), path / placement, placement=placement) as script:
        for piece in (sent[:1700], sent[1700:]):
            script.send("rows", *piece).tick()
        return script.home.query("SELECT * FROM v ORDER BY window_start, k").to_dicts()


def within(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The records of a row's key and window."""
    start, end = (row[c].timestamp() for c in ("window_start", "window_end"))
    return [r for r in records(3000) if r["k"] == row["k"] and start <= r["ts"] < end]


def test_spark_combines_sketches_as_the_kernels_do(spark: object, tmp_path: Path) -> None:
    stage = plan(flow(NATIVE)).views[0].operator
    assert isinstance(stage, Aggregation)
    assert fits([Role(0, stage, stage.feeds[0], 0)])
    inline = answers(tmp_path, NATIVE, "inline")
    assert len(inline) == 21
    for row, inside in ((r, within(r)) for r in inline):
        assert row["n"] == len(inside)
        assert row["texts"] == len({r["s"] for r in inside} - {None})
        assert row["distinct"] == pytest.approx(len({r["x"] for r in inside} - {None}), rel=0.3)
        assert (row["best"] or "") == max((r["f"], r["s"] or "") for r in inside if r["f"] is not None)[1]
    for placement in ("combined", "gathered", "spread"):
        assert answers(tmp_path, NATIVE, placement) == inline


def test_what_spark_cannot_combine_is_the_same_in_every_placement(spark: object, tmp_path: Path) -> None:
    inline = answers(tmp_path, OTHERS, "inline")
    for row, inside in ((r, within(r)) for r in inline):
        assert row["middle"] == statistics.median(r["x"] for r in inside if r["x"] is not None)
        assert row["set_of"] == sorted({r["s"] for r in inside} - {None})
        assert row["distinct"] == len({r["f"] for r in inside} - {None})
    for placement in ("gathered", "spread"):
        assert answers(tmp_path, OTHERS, placement) == inline


@pytest.mark.parametrize("precision", [4, 8, 12])
def test_spark_and_the_kernels_write_the_same_sketches(spark: Any, precision: int) -> None:
    from pyspark.sql import functions as F

    counts = [0, 1, 7, 8, 9, 24, 25, 383, 384, 385, 3000]
    kind = ms.approx_count_distinct("x", precision).kind
    spec = Aggregation("v", ("k",), Windowing(), (Measure("x", kind, True, type=pa.int64()),))
    by = ["$h", "$s", "k"]
    rows = pl.DataFrame({"k": [c for c in counts for _ in range(max(c, 1))]}).with_columns(
        pl.lit(0, pl.Int64).alias("$s"),
        pl.col("k").alias("$h"),
        pl.when(pl.col("k") > 0).then(pl.int_range(pl.len()).over("k") * 7919 - 5000).cast(pl.Int64).alias("@x"),
    )
    ours = combine(spec, rows, by).sort("k")
    frame = spark.createDataFrame(rows.select("k", pl.col("@x").alias("x")).to_arrow()).repartition(3)
    made = frame.groupBy("k").agg(F.expr(f"hll_sketch_agg(x, {precision})").alias("h"), F.count("*").alias("n"))
    theirs = pl.from_arrow(made.orderBy("k").toArrow())
    assert isinstance(theirs, pl.DataFrame)
    folded = theirs.select(
        pl.col("k").alias("$h"), pl.lit(0, pl.Int64).alias("$s"), "k", pl.col("n").alias("$n"), pl.col("h").alias("x$h")
    )
    assert fold(spec, folded, by).sort("k")["x$h"].to_list() == ours["x$h"].to_list()

    read = spark.createDataFrame(ours.select("k", pl.col("x$h").alias("h")).to_arrow())
    said = read.selectExpr("k", "hll_sketch_estimate(h) AS e", "hll_sketch_estimate(hll_union(h, h)) AS u")
    for row, sketch in zip(said.orderBy("k").collect(), ours["x$h"].to_list(), strict=True):
        assert row.e == row.u == pytest.approx(estimate(sketch), rel=0.1, abs=2)
