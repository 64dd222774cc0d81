"""The queries of the Nexmark suite: live views against DuckDB over the same persons, auctions and bids."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import millstream as ms
from millstream.connect.nexmark import Nexmark, events
from millstream.model.types.schema import ddl_type

TEXT = (Path(__file__).parent / "nexmark.sql").read_text(encoding="utf-8")
QUERIES = re.findall(r"^-- query (\w+)\n(.*?)\n-- batch\n(.*?)\s*(?=^-- query|\Z)", TEXT, re.DOTALL | re.MULTILINE)
EVENTS = 3_000


def count_char(text: str, char: str) -> int:
    return text.count(char)


NAMES = {"date_time": "dateTime", "item_name": "itemName"}


def rows_of(kind: str) -> pa.Table:
    made = events(kind, 0, EVENTS, Nexmark(rate=50, seed=7, out_of_order_group=5))
    return made.rename_columns([NAMES.get(c, c) for c in made.column_names])


def multiset(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(repr(_plain(v)) for v in row.values()) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1_000_000)
    return float(value) if type(value).__name__ == "Decimal" else round(value, 6) if isinstance(value, float) else value


def test_all_queries_are_found() -> None:
    assert len(QUERIES) == 23


@pytest.mark.spark
def test_the_views_are_what_a_batch_query_gives(spark: object, tmp_path: Path) -> None:
    kinds = {kind: rows_of(kind) for kind in ("bid", "auction", "person")}
    right = duckdb.connect()
    right.execute("SET TimeZone = 'UTC'")
    for kind, rows in kinds.items():
        right.register(kind, rows)
    with ms.open(tmp_path / "home") as home:
        for kind, rows in kinds.items():
            home.topic(kind, schema=rows.schema)
        session = home.session()

        def say(sql: str) -> None:
            list(session.execute(sql))

        for kind, rows in kinds.items():
            say(_source(kind, rows))
        say(f"CREATE FUNCTION count_char AS '{__name__}:count_char' RETURNS INT")
        say("CREATE TABLE side_input (key BIGINT PRIMARY KEY, value STRING)")
        say("INSERT INTO side_input VALUES " + ", ".join(f"({i}, '{i}')" for i in range(50)))
        say(";\n".join(f"CREATE VIEW {name} AS {live}" for name, live, _ in QUERIES))
        assert set(session.deployment.runs) == {"bid", "auction_person"}, (
            "all views of bids share one flow and one pass over them"
        )
        for kind, rows in kinds.items():
            topic = home.topic(kind)
            for first in range(0, len(rows), 1_000):
                topic.append(rows.slice(first, 1_000))
            session.written.add(kind)
        session.settings["wait"] = 300
        session.settle()
        for name, _, batch in QUERIES:
            found = home.query(f"SELECT * FROM {name}").to_arrow()
            expected = right.sql(batch).to_arrow_table()
            assert multiset(found) == multiset(expected), name
            assert found.num_rows, name
        assert home.query("SELECT * FROM bid$errors").to_dicts() == []


def _source(kind: str, rows: pa.Table) -> str:
    columns = ", ".join(f"{f.name} {ddl_type(f.type)}" for f in rows.schema)
    mark = "WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND"
    return f"CREATE SOURCE {kind} ({columns}, {mark}) FROM LOG('{kind}')"
