"""With Spark: rows of stored tables that an expression fails on, and stored tables with nested columns and no rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import millstream as ms

pytestmark = pytest.mark.spark


def test_bad_rows_of_tables_are_set_aside_and_empty_tables_may_have_nested_columns(
    spark: object, tmp_path: Path
) -> None:
    with ms.open(tmp_path) as home:

        def ask(sql: str) -> list[dict[str, Any]]:
            result = home.sql(sql)
            assert result is not None and result.warnings == ()
            return sorted(result.to_dicts(), key=str)

        home.sql("""
            CREATE TABLE t (a INT, tags ARRAY<STRING>, p STRUCT<x: INT, y: ARRAY<TIMESTAMP>>);
            CREATE VIEW v WITH (tables = 'live', flow = 'one') AS SELECT a, 10 / a AS x, size(tags) AS n, p FROM t;
            CREATE VIEW w WITH (tables = 'live', flow = 'one', on_error = 'null')
                AS SELECT a, CAST(element_at(tags, 1) AS INT) AS x FROM t;
        """)
        assert ask("SELECT * FROM v") == ask("SELECT * FROM w") == []
        home.sql("""INSERT INTO t VALUES (1, array('5', 'b'), NULL), (0, array('c'), named_struct('x', 1, 'y', NULL)),
            (2, array('6'), named_struct('x', 2, 'y', array(TIMESTAMP '2026-01-01 00:00:00')))""")
        assert ask("SELECT a, x, n, p.x AS p FROM v") == [
            {"a": 1, "x": 10.0, "n": 2, "p": None},
            {"a": 2, "x": 5.0, "n": 1, "p": 2},
        ]
        assert ask("SELECT * FROM w") == [{"a": 0, "x": None}, {"a": 1, "x": 5}, {"a": 2, "x": 6}]
        (error,) = ask("SELECT raw, partition, reason FROM v$errors")
        assert json.loads(error["raw"]) == {"a": 0, "tags": ["c"], "p": {"x": 1, "y": None}}
        assert error["partition"] == "t" and error["reason"].startswith("10 / a: Division by zero.")
        assert ask("SELECT * FROM w$errors") == []
        home.sql("UPDATE t SET a = 5 WHERE a = 0")
        assert [r["a"] for r in ask("SELECT a FROM v")] == [1, 2, 5] and ask("SELECT * FROM v$errors") == []
        home.sql("DELETE FROM t WHERE a > 0")
        assert ask("SELECT * FROM v") == ask("SELECT * FROM w") == ask("SELECT * FROM v$errors") == []
