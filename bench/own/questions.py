"""Questions to a view of 1 M rows while its flow runs: one key, and an aggregate over all rows, through SQL."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import millstream as ms

ROWS, BATCH, TIMES = 1_000_000, 100_000, 200
GOALS = {"by_key": 20.0, "aggregate": 200.0}


def measure(work: Path, events: int | None) -> dict[str, Any]:
    rows = events or ROWS
    with ms.open(work / "home") as home:
        session = home.session()
        said = list(
            session.execute(
                "CREATE SOURCE orders (id BIGINT, price BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts) "
                "FROM LOG('orders');"
                "CREATE VIEW totals AS SELECT id, count(*) AS n, sum(price) AS total FROM orders GROUP BY id"
            )
        )
        assert len(said) == 2
        topic = home.topic("orders")
        for first in range(0, rows, BATCH):
            topic.append(_orders(range(first, min(rows, first + BATCH))))
        session.written.add("orders")
        _asked(session, f"SELECT id FROM totals WHERE (SELECT count(*) FROM totals) = {rows} LIMIT 1", 1)
        asked: dict[str, list[float]] = {"by_key": [], "aggregate": []}
        run = session.deployment.runs["orders"]
        epochs = len(run.reports)
        for i in range(TIMES):
            topic.append(_orders(range(i * 100, i * 100 + 100)))  # the flow has work all the time
            key = i * 7919 % rows
            asked["by_key"].append(_asked(session, f"SELECT * FROM totals WHERE id = {key}", 1))
            asked["aggregate"].append(_asked(session, "SELECT count(*) AS n, sum(total) AS t FROM totals", 1))
        epochs = len(run.reports) - epochs
    return {
        "rows": rows,
        "epochs_meanwhile": epochs,
        **{f"{name}_p50_ms": statistics.median(times) for name, times in asked.items()},
        **{f"{name}_p99_ms": sorted(times)[int(len(times) * 0.99)] for name, times in asked.items()},
        **{f"{name}_goal_ms": goal for name, goal in GOALS.items()},
    }


def _orders(numbers: range) -> pa.Table:
    ids = pa.array(numbers, pa.int64())
    times = pa.array([1_767_225_600_000_000 + n for n in numbers], pa.timestamp("us", tz="UTC"))
    return pa.table({"id": ids, "price": ids, "ts": times})


def _asked(session: Any, sql: str, rows: int) -> float:
    begin = time.perf_counter()
    (answer,) = session.execute(sql)
    took = (time.perf_counter() - begin) * 1000
    assert len(answer.result) == rows
    return took
