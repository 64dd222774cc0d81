"""Rows into a stored table with a key: 10,000 rows of 16 columns by VALUES, and 100,000 rows from files.

CPU seconds of this process, user and system, are what counts: a wall clock also measures what else the machine does.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import millstream as ms

VALUES, LOADED = 10_000, 100_000
GOALS = {"values_cpu_s": 3.0, "csv_cpu_s": 10.0, "json_cpu_s": 10.0, "parquet_cpu_s": 10.0}
TYPES = ("BIGINT", "STRING", "DOUBLE", "DECIMAL(10, 2)", "BOOLEAN", "DATE", "TIMESTAMP", "INT") * 2


def measure(work: Path, events: int | None) -> dict[str, Any]:
    loaded = events or LOADED
    inserted = min(VALUES, loaded)
    rows = [_row(i, random.Random(i)) for i in range(loaded)]
    _write(work, rows)
    values, half = _values(rows[:inserted]), _values(rows[: inserted // 2])
    found: dict[str, Any] = {"values_rows": inserted, "file_rows": loaded}
    with ms.open(work / "home") as home:
        session = home.session(start=False)
        columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(TYPES))
        for name in ("half", "values", "csv", "json", "parquet"):
            list(session.execute(f"CREATE TABLE t_{name} ({columns}, PRIMARY KEY (c0))"))
        found["values_half_cpu_s"] = _timed(session, f"INSERT INTO t_half VALUES {half}")
        found["values_cpu_s"] = _timed(session, f"INSERT INTO t_values VALUES {values}")
        for form in ("csv", "json", "parquet"):
            found[f"{form}_cpu_s"] = _timed(session, f"COPY t_{form} FROM '{work}/rows.{form}'")
            (answer,) = session.execute(f"SELECT count(*) AS n, count(DISTINCT c0) AS keys FROM t_{form}")
            assert answer.result is not None and answer.result.to_dicts() == [{"n": loaded, "keys": loaded}]
            (answer,) = session.execute(
                f"SELECT count(*) AS n FROM (SELECT * FROM t_values EXCEPT SELECT * FROM t_{form})"
            )
            assert answer.result is not None and answer.result.to_dicts() == [{"n": 0}], form
    return found | {name.replace("_cpu_s", "_goal_s"): goal for name, goal in GOALS.items()}


def _timed(session: Any, sql: str) -> float:
    begin = time.process_time()
    list(session.execute(sql))
    return time.process_time() - begin


def _row(i: int, chance: random.Random) -> list[Any]:
    day = f"2026-01-{1 + i % 28:02d}"
    price = f"{i % 1000}.{i % 100:02d}"
    return [i, f"name {i}", chance.random(), price, i % 2 == 0, day, f"{day} 12:00:00", None if i % 3 else 7] * 2


def _literal(value: Any, kind: str) -> str:
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).lower()
    return f"'{value}'" if kind in ("STRING", "DATE", "TIMESTAMP") else str(value)


def _values(rows: list[list[Any]]) -> str:
    return ", ".join("(" + ", ".join(map(_literal, row, TYPES)) + ")" for row in rows)


def _write(work: Path, rows: list[list[Any]]) -> None:
    names = [f"c{i}" for i in range(len(TYPES))]
    with (work / "rows.csv").open("w") as file:
        file.write(",".join(names) + "\n")
        for row in rows:
            file.write(
                ",".join("" if v is None else str(v).lower() if isinstance(v, bool) else str(v) for v in row) + "\n"
            )
    with (work / "rows.json").open("w") as file:
        for row in rows:
            numbers = {f"c{i}": float(row[i]) for i in (3, 11)}
            file.write(json.dumps({**dict(zip(names, row, strict=True)), **numbers}) + "\n")
    table = pa.table(list(map(list, zip(*rows, strict=True))), names=names)
    for i in (3, 11):
        table = table.set_column(i, names[i], table[names[i]].cast(pa.decimal128(10, 2)))
    pq.write_table(table, work / "rows.parquet")
