"""Live views against Spark's batch: random queries over random rows, in disorder and cut into random epochs.

A failure names its seed and the number of its query; one command plays that one alone:
``DIFFERENTIAL=7:42 pytest tests/sql/test_differential.py -m "not slow"``.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import MillstreamError
from millstream.model.flow import Flow
from millstream.model.types.schema import Schema
from millstream.sql.bind.binder import Binder
from millstream.sql.catalog import Catalog
from millstream.sql.parse import statement_parser
from millstream.sql.parse.statement_values import CreateView
from millstream.sql.parse.text import Text
from millstream.testing.script import Script
from tests.sql import kit
from tests.sql.engine import with_topics
from tests.sql.random_queries import SCHEMA, SOURCE, epochs_of, query_of, rows_of

QUERIES = 100
CODE = "spark.sql.codegen.wholeStage"
ALONE = os.environ.get("DIFFERENTIAL")


def multiset(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(_plain(v) for v in row.values()) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1_000_000)
    return float(value) if type(value).__name__ == "Decimal" else value


def difference(found: Counter[tuple[Any, ...]], expected: Counter[tuple[Any, ...]]) -> str:
    missing, unexpected = expected - found, found - expected
    return f"missing {list(missing.elements())[:4]}, unexpected {list(unexpected.elements())[:4]}"


def compared(spark: Any, path: Path, seed: int, numbers: list[int]) -> list[str]:
    """Compute some queries both ways; what differs."""
    wrong: list[str] = []
    queries = {f"v{n}": query_of(seed, n) for n in numbers}
    catalog = kit.defined(SOURCE, Catalog())
    flow = Flow("f")
    binder = Binder(flow, catalog, {})
    for name, query in list(queries.items()):
        try:
            (entry,) = statement_parser.read(Text(f"CREATE VIEW {name} AS {query.live}"))
            assert isinstance(entry, CreateView)
            catalog.add(entry)
            binder.view(entry)
        except MillstreamError as error:
            wrong.append(f"DIFFERENTIAL={seed}:{name[1:]} was refused: {error}\n    {query.live}")
            del queries[name]
    rows = rows_of(seed)
    schema = Schema.parse(SCHEMA)
    with Script(flow, with_topics(path, {"r": schema})) as script:
        for epoch in epochs_of(seed, rows):
            script.home.topic("r").append(epoch)
            script.tick()
        topic = script.home.topic("r")
        every = topic.read(0, 0, topic.end()[0])
        spark.createDataFrame(every.select(schema.names)).coalesce(1).cache().createOrReplaceTempView("r")
        spark.conf.set(CODE, "false")  # compiling takes longer than so few rows
        for name, query in queries.items():
            found = multiset(script.home.query(f"SELECT * FROM {name}").to_arrow())
            expected = multiset(spark.sql(query.batch).toArrow())
            if found != expected:
                told = difference(found, expected)
                wrong.append(f"DIFFERENTIAL={seed}:{name[1:]} differs: {told}\n    {query.live}\n    {query.batch}")
        spark.conf.unset(CODE)
        spark.catalog.clearCache()
    return wrong


def check(spark: Any, path: Path, seed: int, queries: int = QUERIES) -> None:
    numbers = list(range(queries))
    if ALONE:
        seed, numbers = int(ALONE.partition(":")[0]), [int(ALONE.partition(":")[2])]
    wrong = compared(spark, path, seed, numbers)
    assert not wrong, f"{len(wrong)} queries:\n" + "\n".join(wrong)


@pytest.mark.spark
@pytest.mark.slow
def test_live_views_are_what_a_batch_query_gives(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, 0, QUERIES // 4)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(21))
def test_many_more_live_views_are_what_a_batch_query_gives(spark: Any, tmp_path: Path, seed: int) -> None:
    check(spark, tmp_path, seed)
