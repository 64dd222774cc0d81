"""Parquet files that Arrow reads give what Spark gives: rows, positions, errors, late rows, and whole flows."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import millstream as ms
from millstream.connect.forms import FilePart, FileSet, SparkFormat
from millstream.engine.input.native_slices import native_slice
from millstream.engine.input.readers import files, parquet_groups, spark_batch
from millstream.engine.input.readers.columns import Wanted
from millstream.engine.input.readers.parquet_groups import RowGroup, dealt
from millstream.engine.placement import Placement
from millstream.model.connectors import memory
from millstream.model.source_options import SourceOptions
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Schema
from millstream.plan.plan import PlannedSource
from tests.seeds import run_seed

pytestmark = pytest.mark.spark

SCHEMA = Schema.parse(
    "l BIGINT, i INT, k TINYINT, h SMALLINT, d DOUBLE, f FLOAT, s STRING, b BOOLEAN, y DATE, m DECIMAL(12, 3), "
    "x BINARY, n TIMESTAMP_NTZ, ts TIMESTAMP"
)
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
NOW = 1_767_225_600_000_000


def table(count: int, seed: int) -> pa.Table:
    """Random rows with NULLs, extreme values, and times of other calendars."""
    chance = random.Random(seed)
    old = dt.datetime(1400, 2, 3, 4, 5, 6, 789, tzinfo=dt.UTC)

    def time() -> dt.datetime:
        return chance.choice([old, START]) + dt.timedelta(microseconds=chance.randrange(10**14))

    values: dict[str, Callable[[], Any]] = {
        "l": lambda: chance.choice([0, 2**63 - 1, -(2**63), chance.randrange(-(10**12), 10**12)]),
        "i": lambda: chance.randrange(-(2**31), 2**31),
        "k": lambda: chance.randrange(-128, 128),
        "h": lambda: chance.randrange(-(2**15), 2**15),
        "d": lambda: chance.choice([0.0, -0.0, float("nan"), float("-inf"), chance.uniform(-9, 9)]),
        "f": lambda: chance.choice([0.0, -0.0, float("nan"), 1.5]),
        "s": lambda: chance.choice(["", "a", "ü€😀", "x" * 40, "\x00"]),
        "b": lambda: chance.random() < 0.5,
        "y": lambda: time().date(),
        "m": lambda: decimal.Decimal(chance.randrange(-(10**12) + 1, 10**12)).scaleb(-3),
        "x": lambda: chance.randbytes(chance.randrange(5)),
        "n": lambda: time().replace(tzinfo=None),
        "ts": time,
    }
    rows = [{n: None if chance.random() < 0.1 else make() for n, make in values.items()} for _ in range(count)]
    return pa.Table.from_pylist(rows, schema=SCHEMA.to_arrow())


def planned(schema: Schema = SCHEMA) -> PlannedSource:
    options = SourceOptions("ts", Duration(0), Duration(1), None, None)
    return PlannedSource("rows", memory(), schema, options, positions=True)


def file_set(*paths: Path) -> FileSet:
    return FileSet("parquet", tuple(FilePart(3 + i, str(p), p.stat().st_size) for i, p in enumerate(paths)))


def natively(spark: SparkSession, form: FileSet | SparkFormat, source: PlannedSource) -> pl.DataFrame:
    found = native_slice(spark, Wanted(source, NOW), [form])
    assert found is not None
    rows = pl.from_arrow(pa.Table.from_batches([b for share in found.shares for b in share.batches()]))
    assert isinstance(rows, pl.DataFrame)
    return rows


def of_frame(frame: Any, columns: list[str]) -> pl.DataFrame:
    rows = pl.from_arrow(frame.selectExpr(*(f"`{c}`" for c in columns)).toArrow())
    assert isinstance(rows, pl.DataFrame)
    return rows.sort("$part", "$pos")


def by_pyarrow(rows: pa.Table, path: Path) -> None:
    pq.write_table(rows, path, row_group_size=70)


def by_pyarrow_compressed(rows: pa.Table, path: Path) -> None:
    pq.write_table(rows, path, compression="zstd", version="2.6", data_page_version="2.0", use_dictionary=False)


def by_polars(rows: pa.Table, path: Path) -> None:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(path, row_group_size=64)


def by_duckdb(rows: pa.Table, path: Path) -> None:
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        con.register("rows", rows)
        con.execute(f"COPY (SELECT * FROM rows) TO '{path}' (FORMAT parquet)")


@pytest.mark.parametrize("write", [by_pyarrow, by_pyarrow_compressed, by_polars, by_duckdb])
def test_rows_and_positions_are_those_of_spark(
    spark: SparkSession, tmp_path: Path, write: Callable[[pa.Table, Path], None]
) -> None:
    paths = [tmp_path / "a.parquet", tmp_path / "b b.parquet"]
    for i, path in enumerate(paths):
        write(table(300, run_seed() + i), path)
    source, form = planned(), file_set(*paths)
    found = natively(spark, form, source)
    (read,) = files.read(spark, Wanted(source, NOW, details=True), form)
    frame = read.frame.selectExpr(
        *(f"`{n}`" for n in SCHEMA.names), f"CAST({read.part} AS INT) AS `$part`", f"{read.position} AS `$pos`"
    )
    assert found.equals(of_frame(frame, found.columns))
    assert found["$pos"].to_list() == [(3 << 36) + i for i in range(300)] + [(4 << 36) + i for i in range(300)]


def test_only_the_columns_that_are_read(spark: SparkSession, tmp_path: Path) -> None:
    by_pyarrow(table(100, 1), tmp_path / "a.parquet")
    found = native_slice(spark, Wanted(planned(), NOW, only=frozenset({"s"})), [file_set(tmp_path / "a.parquet")])
    assert found is not None
    assert found.small
    assert {tuple(b.schema.names) for share in found.shares for b in share.batches()} == {("s", "$part", "$pos")}


def cast(rows: pa.Table, name: str, kind: pa.DataType) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(kind, safe=False))


OTHERS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "a narrower number": lambda rows: cast(rows, "l", pa.int32()),
    "another precision": lambda rows: cast(rows, "m", pa.decimal128(14, 3)),
    "another scale of time": lambda rows: cast(rows, "ts", pa.timestamp("ns", "UTC")),
    "a time without a zone": lambda rows: cast(rows, "ts", pa.timestamp("us")),
    "a column that is missing": lambda rows: rows.drop_columns(["b"]),
    "a name in another case": lambda rows: rows.rename_columns(["L", *rows.column_names[1:]]),
    "two names that differ in case": lambda rows: rows.append_column("S", rows["s"]),
    "texts by number": lambda rows: cast(rows, "s", pa.dictionary(pa.int32(), pa.string())),
    "an old calendar": lambda rows: rows.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}),
    "an old writer": lambda rows: rows.replace_schema_metadata({"org.apache.spark.version": "2.4.8"}),
}


@pytest.mark.parametrize("what", OTHERS)
def test_files_that_arrow_might_read_in_another_way_are_left_to_spark(tmp_path: Path, what: str) -> None:
    rows = table(20, 5)
    by_pyarrow(rows, tmp_path / "good.parquet")
    by_pyarrow(OTHERS[what](rows), tmp_path / "other.parquet")
    good, other = file_set(tmp_path / "good.parquet"), file_set(tmp_path / "good.parquet", tmp_path / "other.parquet")
    assert parquet_groups.of_files(good.files, SCHEMA) is not None
    assert parquet_groups.of_files(other.files, SCHEMA) is None


def test_int96_is_left_to_spark(tmp_path: Path) -> None:
    pq.write_table(table(20, 5), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert parquet_groups.of_files(file_set(tmp_path / "a.parquet").files, SCHEMA) is None


def test_files_that_carry_partitions_and_positions(spark: SparkSession, tmp_path: Path) -> None:
    rows = table(400, run_seed() + 9)
    rows = rows.append_column("$part", pa.array([i % 3 for i in range(400)], pa.int32()))
    rows = rows.append_column("$offset", pa.array(range(400), pa.int64()))
    by_pyarrow(rows, tmp_path / "a.parquet")
    ranges = {0: (30, 200), 2: (0, 90)}
    form = SparkFormat("parquet", paths=(str(tmp_path / "a.parquet"),), ranges=ranges)
    found = natively(spark, form, planned())
    expected = of_frame(spark_batch.read(spark, Wanted(planned(), NOW), form).frame, found.columns)
    assert found.sort("$part", "$pos").equals(expected)
    assert len(found) == 57 + 30
    assert parquet_groups.of_segments(SparkFormat("orc", paths=form.paths), SCHEMA) is None


def test_tasks_get_about_the_same_number_of_rows() -> None:
    groups = [RowGroup("a", i, rows) for i, rows in enumerate([10, 10, 10, 10, 1, 1, 1, 37, 0, 20])]
    shares = dealt(groups, 2)
    assert [g for share in shares for g in share] == groups
    assert [sum(g.rows for g in share) for share in shares] == [43, 57]
    assert dealt(groups[:1], 4) == [groups[:1]]
    many = [RowGroup("a", i, 1_000_000) for i in range(20)]
    assert [len(share) for share in dealt(many, 2)] == [3, 4, 3, 3, 4, 3]


def rows_of_a_day(count: int, first: int) -> pa.Table:
    """Rows in time order, some without a time, and some long late."""
    times = [START + dt.timedelta(seconds=first + i) for i in range(count)]
    times[5::40] = [START - dt.timedelta(days=1)] * len(times[5::40])
    missing = [None if i % 50 == 7 else t for i, t in enumerate(times)]
    return pa.table(
        {
            "k": pa.array([i % 7 for i in range(count)], pa.int64()),
            "v": pa.array([first + i for i in range(count)], pa.int64()),
            "s": pa.array([None if i % 9 == 0 else f"t{i % 3}" for i in range(count)]),
            "ts": pa.array(missing, pa.timestamp("us", "UTC")),
        }
    )


@pytest.mark.parametrize("placement", ["inline", "gathered", "spread"])
def test_flows_are_the_same_with_and_without_spark(
    spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, placement: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for i in range(3):
        pq.write_table(rows_of_a_day(400, i * 400), data / f"{i}.parquet", row_group_size=150)
    found = []
    for native in (True, False):
        monkeypatch.setattr(Placement, "reads_natively", lambda self, native=native: native)
        flow = ms.Flow("f")
        rows = flow.source(
            "rows", ms.files(str(data), format="parquet", bounded=True), event_time="ts", lateness="1 minute",
            schema="k BIGINT, v BIGINT, s STRING, ts TIMESTAMP", max_rows=1,
        )  # fmt: skip
        rows.key_by("k").window(ms.tumbling("1 minute")).aggregate(n=ms.count(), last=ms.last("v")).view("counts")
        rows.where("v % 2 = 0").select("k", "v", "s").view("even")
        rows.key_by("s").top(3, by="v").view("best")
        with ms.open(tmp_path / f"home-{native}") as home:
            running = home.start(flow, placement=placement, shards=3)
            running.catch_up()
            running.stop()
            asked = [f"SELECT * FROM {name}" for name in ("counts", "even", "best")]
            asked += ['SELECT epoch, reason, raw, "partition", "offset" FROM "rows$errors"']
            asked += ['SELECT epoch, event_time, reason, record FROM "counts$late"']
            found.append([sorted(home.query(sql).to_dicts(), key=repr) for sql in asked])
    assert found[0] == found[1]
    assert [len(rows) for rows in found[0][3:]] == [24, 20]


def test_a_file_that_is_damaged_in_the_middle_is_one_error(spark: object, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("a", "b"):
        pq.write_table(rows_of_a_day(100_000, 0), data / f"{name}.parquet", row_group_size=20_000)
    keys = pq.read_metadata(data / "b.parquet").row_group(2).column(0)
    with (data / "b.parquet").open("r+b") as file:
        file.seek(keys.dictionary_page_offset)
        file.write(b"\xff" * keys.total_compressed_size)
    flow = ms.Flow("f")
    schema = "k BIGINT, v BIGINT, s STRING, ts TIMESTAMP"
    rows = flow.source("rows", ms.files(str(data), format="parquet", bounded=True), schema=schema)
    rows.key_by("k").aggregate(n=ms.count()).view("counts")
    with ms.open(tmp_path / "home") as home, home.start(flow) as running:
        running.catch_up()
        assert home.query("SELECT CAST(sum(n) AS BIGINT) AS n FROM counts").to_dicts() == [{"n": 100_000}]
        (error,) = home.query('SELECT raw FROM "rows$errors"').to_dicts()
        assert "damaged" in error["raw"]
