"""Scans without Spark give what Spark gives: hashes, columns, errors, and whole flows over text with doubtful lines."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.connect.forms import ArrowRows
from millstream.engine.input import prelude
from millstream.engine.input.native_prelude import native_scan
from millstream.engine.input.readers.arrow_rows import read as read_rows
from millstream.engine.input.readers.columns import Wanted
from millstream.engine.placement import Placement
from millstream.engine.spark.frames import arrow_schema
from millstream.kernels.spark_hash import hashed_rows, is_hashable
from millstream.model.connectors import memory
from millstream.model.source_options import SourceOptions
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Schema
from millstream.plan.parts import Column, Explode, Project
from millstream.plan.plan import PlannedSource, Scan
from tests.seeds import run_seed

pytestmark = pytest.mark.spark

SCHEMA = Schema.parse("l BIGINT, i INT, k TINYINT, d DOUBLE, f FLOAT, s STRING, b BOOLEAN, y DATE, ts TIMESTAMP")
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
TEXTS = ("", "a", "abc", "abcd", "seven77", "eight888", "ü€😀", "x" * 31, "x" * 32, "x" * 33, "y" * 100)
NOW = 1_767_225_600_000_000


def table(count: int, seed: int) -> pa.Table:
    """Random rows with NULLs and extreme values."""
    chance = random.Random(seed)
    values: dict[str, Any] = {
        "l": lambda: chance.choice([0, 1, -1, 2**63 - 1, -(2**63), chance.randrange(-(10**12), 10**12)]),
        "i": lambda: chance.choice([0, -1, 2**31 - 1, -(2**31), chance.randrange(1000)]),
        "k": lambda: chance.randrange(-128, 128),
        "d": lambda: chance.choice([0.0, -0.0, float("nan"), float("inf"), chance.uniform(-9, 9)]),
        "f": lambda: chance.choice([0.0, -0.0, float("nan"), 1.5, -2.25]),
        "s": lambda: chance.choice(TEXTS),
        "b": lambda: chance.random() < 0.5,
        "y": lambda: dt.date(1960, 1, 1) + dt.timedelta(days=chance.randrange(40_000)),
        "ts": lambda: START + dt.timedelta(microseconds=chance.randrange(-(10**12), 10**12)),
    }
    rows = [{n: None if chance.random() < 0.1 else make() for n, make in values.items()} for _ in range(count)]
    rows[0]["ts"] = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
    given = pa.Table.from_pylist(rows, schema=SCHEMA.to_arrow())
    return given.append_column("$part", pa.array([0] * count, pa.int32())).append_column(
        "$pos", pa.array(range(count), pa.int64())
    )


def test_hashes_of_all_types_are_those_of_spark(spark: SparkSession) -> None:
    given = table(400, run_seed() + 1)
    names = [n for n in SCHEMA.names if is_hashable(pl.from_arrow(given)[n].dtype)]  # type: ignore[union-attr, call-overload]
    assert names == list(SCHEMA.names)
    sets = [[n] for n in names] + [["l", "s"], ["s", "l"], ["s", "s"], ["b", "i", "y", "d"], names]
    frame = spark.createDataFrame(given.select(names))
    expected = frame.selectExpr(*(f"xxhash64({', '.join(s)}) AS h{i}" for i, s in enumerate(sets))).toArrow()
    columns = pl.from_arrow(given)
    assert isinstance(columns, pl.DataFrame)
    for i, some in enumerate(sets):
        found = hashed_rows([columns[n] for n in some], len(columns))
        assert found.tolist() == expected[f"h{i}"].to_pylist(), some


EXPRESSIONS = (
    "`l`", "`s`", "`ts`", "0L", "(`$ts` - pmod(`$ts` - 0L, 10000000L))", "(`$ts` - pmod(`$ts` - 3000000L, 7000000L))",
    "xxhash64(`l`)", "xxhash64(`s`, `l`)", "xxhash64(`l` % 10)", "xxhash64(`l` % 10, `i` % 7)", "`l` % 10", "`i` % 7",
    "MOD(`l`, 123) = 0", "`l` > 10", "`i` <= 3 AND `s` = 'abc'", "`s` IS NULL OR NOT (`b` AND `l` > 1)", "`ts` > `ts`",
    "CAST(0.908 * `l` AS DECIMAL(23, 3))", "CAST(`i` * 2.5 AS DECIMAL(38, 1))", "CAST(`l` * 12.34 AS DECIMAL(25, 2))",
    "`ts` + INTERVAL '5' SECOND", "`i` BETWEEN 1 AND 500", "`l` = `i`", "`y` >= `y`", "'x' < `s`", "1", "3000000000",
    "'x'", "xxhash64(1)", "xxhash64(`l`, 'x', 7)",
)  # fmt: skip
OUTSIDE = (
    "`k` % 3",
    "`l` + 1",
    "`d` > 1",
    "CAST(0.908 * `l` AS DECIMAL(21, 3))",
    "upper(`s`)",
    "`i` % -7",
    "`l` % 0",
)


def planned(
    *, event_time: str | None = "ts", processing_time: str | None = None, positions: bool = True
) -> PlannedSource:
    options = SourceOptions(event_time, Duration(0), Duration(1), None, None, processing_time=processing_time)
    return PlannedSource("rows", memory(), SCHEMA, options, positions=positions)


def by_spark(spark: SparkSession, source: PlannedSource, scan: Scan, given: pa.Table) -> Any:
    frame = read_rows(spark, Wanted(source, NOW), ArrowRows(given)).selected(Wanted(source, NOW), by_line=False)
    return prelude.columns(prelude.through(frame, scan, source, {}, NOW), scan)


def bound(spark: SparkSession, source: PlannedSource, *columns: Column, ops: tuple[Any, ...] = ()) -> Scan:
    scan = Scan(0, source.name, ops, columns)
    nothing = table(1, 0).slice(0, 0)
    kinds = arrow_schema(by_spark(spark, source, scan, nothing), {})
    return Scan(0, source.name, ops, columns, pa.schema([kinds.field(c.name) for c in columns]))


def compared(spark: SparkSession, source: PlannedSource, scan: Scan, given: pa.Table) -> pl.DataFrame:
    native = native_scan(source, scan)
    assert native is not None
    rows = pl.from_arrow(given)
    assert isinstance(rows, pl.DataFrame)
    found = native.__class__(**{**native.__dict__, "now": NOW}).rows(rows)
    assert found is not None
    expected = pl.from_arrow(by_spark(spark, source, scan, given).toArrow())
    assert isinstance(expected, pl.DataFrame)
    order = ["$pos"] if "$pos" in found.columns else found.columns
    assert found.schema == expected.select(found.columns).schema
    assert found.sort(order).equals(expected.select(found.columns).sort(order))
    return found


def test_columns_are_those_of_spark(spark: SparkSession) -> None:
    source = planned()
    scan = bound(spark, source, *(Column(f"c{i}", sql) for i, sql in enumerate(EXPRESSIONS)))
    found = compared(spark, source, scan, table(500, run_seed() + 2))
    assert found["$bad"].n_unique() == 2  # some rows have no time


@pytest.mark.parametrize("sql", OUTSIDE)
def test_what_might_differ_is_left_to_spark(spark: SparkSession, sql: str) -> None:
    source = planned()
    assert native_scan(source, Scan(0, "rows", (), (Column("c", sql),), pa.schema([("c", pa.int64())]))) is None


def test_sources_without_event_time_and_with_processing_time(spark: SparkSession) -> None:
    given = table(50, run_seed() + 3)
    timeless = planned(event_time=None, positions=False)
    compared(spark, timeless, bound(spark, timeless, Column("c", "`l`"), Column("t", "`ts`")), given)
    clocked = planned(processing_time="clock")
    compared(spark, clocked, bound(spark, clocked, Column("c", "`clock`"), Column("t", "`ts`")), given)


def test_projections_before_the_columns(spark: SparkSession) -> None:
    source = planned()
    first = Project("`l` > 0 AND `b`", (Column("a", "`l` % 100"), Column("t", "`ts`"), Column("i", "`i`")))
    then = Project(None, (Column("c", "`a`"), Column("late", "`t` + INTERVAL '1' MINUTE")))
    scan = bound(
        spark, source, Column("x", "`c`"), Column("h", "xxhash64(`c`)"), Column("y", "`late`"), ops=(first, then)
    )
    assert len(compared(spark, source, scan, table(300, run_seed() + 4))) > 20
    exploded = Scan(0, "rows", (Explode("e", "array(`l`)", keep_empty=False),), (Column("c", "`l`"),), scan.types)
    assert native_scan(source, exploded) is None


def lines(count: int, *, all_wrong: bool = False) -> list[str]:
    """JSON lines, some of which only Spark may judge, and some of which are errors: if `all_wrong`, all of those that
    are left to Spark.
    """
    made = []
    for i in range(count):
        time = f"2026-01-01T00:{i // 60 % 60:02d}:{i % 60:02d}Z"
        line = f'{{"k": {i % 7}, "v": {i}, "s": "t{i % 3}", "ts": "{time}"}}'
        if i % 50 == 7 and not all_wrong:
            line = f'{{"k": {i % 7}, "v": "{i}", "s": "t", "ts": "{time}"}}'  # a number in quotes
        elif i % 50 == 13 and not all_wrong:
            line = f'{{"k": {i % 7}, "v": {i}, "s": "t{i % 3}", "ts": "{time.replace("Z", "+0000")}"}}'
        elif i % 50 == 21:
            line = line[:-5]
        elif i % 50 == 33:
            line = f'{{"k": {i % 7}, "v": {i}, "s": null}}'
        made.append(line)
    return made


@pytest.mark.parametrize(
    ("placement", "all_wrong"), [("inline", False), ("gathered", False), ("spread", False), ("spread", True)]
)
def test_flows_over_doubtful_lines_are_the_same_with_and_without_spark(
    spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, placement: str, *, all_wrong: bool
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.json").write_text("\n".join(lines(400, all_wrong=all_wrong)) + "\n")
    (data / "b.json").write_text("\n".join(lines(150, all_wrong=all_wrong)))
    found = []
    for native in (True, False):
        monkeypatch.setattr(Placement, "reads_natively", lambda self, native=native: native)
        flow = ms.Flow("f")
        rows = flow.source(
            "rows", ms.files(str(data), format="json", bounded=True), event_time="ts", lateness="1 hour",
            schema="k BIGINT, v BIGINT, s STRING, ts TIMESTAMP",
        )  # fmt: skip
        rows.key_by("k").window(ms.tumbling("1 minute")).aggregate(n=ms.count(), last=ms.last("v")).view("counts")
        rows.where("v % 2 = 0").select("k", "v", "s").view("even")
        rows.key_by("s").top(3, by="v").view("best")
        with ms.open(tmp_path / f"home-{native}") as home:
            running = home.start(flow, placement=placement, shards=3)
            running.catch_up()
            if native:
                assert running.loop is not None
                strict = running.loop.engine.strict  # type: ignore[attr-defined]
                assert strict == ({"rows"} if placement == "spread" and not all_wrong else set())
            running.stop()
            found.append(
                [
                    sorted(home.query(f"SELECT * FROM {name}").to_dicts(), key=repr)
                    for name in ("counts", "even", "best")
                ]
                + [
                    sorted(
                        home.query('SELECT reason, raw, "partition", "offset" FROM "rows$errors"').to_dicts(), key=repr
                    )
                ]
            )
    assert found[0] == found[1]
    assert len(found[0][3]) == (22 if all_wrong else 33)
