"""Random queries of the language on Spark: as batches, and as views with every placement, against DuckDB."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.engine.spark.frames import frame_of
from millstream.testing import Script
from tests.sql.language import Making, patterns
from tests.sql.test_relations import row
from tests.sql.worlds import (
    BASES,
    SOURCES,
    batch,
    by_view,
    compare,
    flow_of,
    in_duckdb,
    multiset,
    queries,
    send,
    take,
    together,
    wide_row,
)

pytestmark = pytest.mark.spark

OTHERS = ("ROLLUP", "CUBE", "GROUPING SETS", "v0", "v1", "TUMBLE", "HOP", " e ")
"""What is not compared: Spark has no total over no rows, and these names are not there."""
TOTAL = "SELECT k, count(*) AS v, max(s) AS s FROM a x GROUP BY ROLLUP (k)"
PLACEMENTS = ("inline", "combined", "spread")


def as_batches(spark: Any, seeds: Iterable[int], most: int) -> int:
    """Run generated queries as they are in Spark and translated in DuckDB, over the same rows; how many
    Spark takes, `most` at most.
    """
    from pyspark.errors import AnalysisException, ParseException

    chance, right, compared = random.Random(str(seeds)), batch(), 0
    rows = {n: [(wide_row if n == "w_" else row)(chance) for _ in range(9)] for n in SOURCES}
    take(right, rows)
    for name in (*BASES, "w"):
        found = right.sql(f"SELECT * FROM {name}").to_arrow_table()
        frame_of(spark, pa.table(found.columns, names=found.column_names)).createOrReplaceTempView(name)
    asked = [sql for seed in seeds for kind in ("sources", "tables") for sql in queries(kind, seed).values()]
    for sql in (s for s in asked if not any(o in s for o in OTHERS)):
        try:
            frame = spark.sql(f"SELECT k, v, s FROM ({sql}) q")
        except (AnalysisException, ParseException):  # a clause that Spark does not have
            continue
        have = multiset(tuple(r) for r in frame.collect())
        expected = multiset(right.execute(f"SELECT k, v, s FROM ({in_duckdb(sql)}) q").fetchall())
        assert have == expected, f"Spark gives {have}, DuckDB {expected}\n{sql}"
        compared += 1
        if compared == most:
            break
    return compared


def grouped(seed: int, number: int) -> dict[str, str]:
    """Views whose first stage is an aggregate of records: it is what a placement moves."""
    chance = random.Random(f"grouped {seed}")
    given = [p for p in patterns()["relation"] if "GROUP BY" in p and "{small}" not in p and "QUALIFY" not in p]
    makings = [Making(chance) for _ in range(number)]
    return {f"g{i}": m.filled(chance.choice(given), "relation", 0, ()) for i, m in enumerate(makings)}


def with_every_placement(path: Path, seed: int, views: dict[str, str]) -> None:
    """Views on Spark are what DuckDB gives, wherever their work is done; the first epoch may bring no rows."""
    for placement in PLACEMENTS:
        chance, right = random.Random(seed), batch()
        sent: dict[str, list[dict[str, Any]]] = {n: [] for n in SOURCES}
        with Script(flow_of(views), path / placement, placement=placement, shards=2) as script:
            for epoch in (0, 2):
                if epoch:
                    send(chance, script, sent, epoch)
                script.tick()
                take(right, sent)
                found = by_view(script.home.query(together(views)).to_dicts())
                for name, sql in views.items():
                    compare(right, found[name], sql, f"{placement}:{seed}", epoch, sent)


def test_spark_and_duckdb_mean_the_same_by_a_query(spark: object) -> None:
    assert as_batches(spark, [1, 2], 20) == 20


def test_the_first_rows_are_taken_where_a_scalar_subquery_joins_them(tmp_path: Path) -> None:
    rows = "(2, 5, 'a'), (1, 5, 'a'), (3, 6, 'a'), (NULL, 5, 'a'), (0, 4, 'b')"
    first = "(SELECT k, v FROM (SELECT DISTINCT k, v FROM HISTORY OF b) d ORDER BY v DESC, k LIMIT 2)"
    with ms.open(tmp_path / "home") as home:
        home.sql(f"CREATE SOURCE b (k BIGINT, v BIGINT, s STRING) FROM LOG('b'); INSERT INTO b VALUES {rows}")
        found = home.sql(f"SELECT k, (SELECT count(*) FROM HISTORY OF b y WHERE y.k = x.k) AS n FROM {first} x")
        assert found.to_dicts() in ([{"k": 3, "n": 1}, {"k": None, "n": 0}], [{"k": None, "n": 0}, {"k": 3, "n": 1}])


def test_views_are_the_same_in_every_placement(spark: object, tmp_path: Path) -> None:
    with_every_placement(tmp_path, 0, {"total": TOTAL, **grouped(0, 3)})


@pytest.mark.slow
@pytest.mark.parametrize("share", range(10))
def test_spark_and_duckdb_mean_the_same_by_many_queries(spark: object, share: int) -> None:
    assert as_batches(spark, range(100 + 10 * share, 110 + 10 * share), 1_000) >= 100


@pytest.mark.slow
@pytest.mark.parametrize("share", range(10))
def test_many_views_are_the_same_in_every_placement(spark: object, tmp_path: Path, share: int) -> None:
    for seed in range(1 + 3 * share, 4 + 3 * share):
        with_every_placement(tmp_path / str(seed), seed, {"total": TOTAL, **grouped(seed, 8)})
