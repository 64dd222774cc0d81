"""Flink SQL in a contest, through PyFlink: streaming mode, parallelism = cores, state on the heap, no checkpoints.

The timed run sends its rows to a blackhole (the query that is about files: to CSV files). So that its answer can be
checked the warm-up writes all its changes to files instead, which are folded to the rows that are left in the end. It
reads the files of `json-lanes`, for the reason that flink.py gives.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from bench.peers.protocol import COLUMNS, SIDE_ROWS, Asked, answer, asked

INSIDE = "submission of the SQL job to its end: planning, reading, state; rows are dropped; not JVM start, warm-up"
LOCAL = (
    "rest.address",
    "rest.bind-address",
    "jobmanager.bind-host",
    "jobmanager.rpc.address",
    "taskmanager.bind-host",
    "taskmanager.host",
)
"""Where Flink would listen on all interfaces."""

# No Python runs inside the job; in its default mode PyFlink opens a port on all interfaces for that.
os.environ["_python_worker_execution_mode"] = "process"
os.environ["JVM_ARGS"] = "-Xmx8g"


def environment(this: Asked) -> TableEnvironment:
    settings = Configuration()
    for name, value in {
        "parallelism.default": str(os.cpu_count()),
        "pipeline.object-reuse": "true",
        "state.backend.type": "hashmap",
        "table.local-time-zone": "UTC",
        "taskmanager.memory.network.min": "128mb",
        "taskmanager.memory.network.max": "128mb",
        "io.tmp.dirs": this.work,
        **dict.fromkeys(LOCAL, "127.0.0.1"),
        **{k: v for k, v in this.options.items() if "." in k},
    }.items():
        settings.set_string(name, value)
    return TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    )


def sources(tables: TableEnvironment, this: Asked, data: dict[str, str]) -> None:
    """The tables of the query, over these files."""
    for kind, folder in data.items():
        clock = ", p_time AS PROCTIME()" if this.case == "nexmark-q12" else ""
        tables.execute_sql(f"DROP TABLE IF EXISTS {kind}")
        tables.execute_sql(
            f"""CREATE TABLE {kind} ({quoted(COLUMNS[kind]).replace("TIMESTAMP", "TIMESTAMP_LTZ(3)")}{clock},
                WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '{this.lateness}' SECOND)
                WITH ('connector'='filesystem', 'path'='file://{folder}/json-lanes', 'format'='json',
                      'json.timestamp-format.standard'='ISO-8601')"""
        )
    if this.case == "nexmark-q13":
        path = Path(this.work) / "side_input.csv"
        path.write_text("".join(f"{i},{i}\n" for i in range(SIDE_ROWS)))
        tables.execute_sql("DROP TABLE IF EXISTS side_input")
        tables.execute_sql(
            f"""CREATE TABLE side_input (key BIGINT, `value` STRING)
                WITH ('connector'='filesystem', 'path'='file://{path}', 'format'='csv')"""
        )


def run(tables: TableEnvironment, this: Asked, data: dict[str, str], name: str) -> float:
    """One whole job, from submission to end."""
    sources(tables, this, data)
    sink = "'connector'='blackhole'"
    if this.case == "nexmark-q10":
        sink = f"'connector'='filesystem', 'path'='file://{this.work}/{name}', 'format'='csv'"
    begin = time.perf_counter()
    tables.execute_sql(f"CREATE TABLE out_{name} WITH ({sink}) AS {quoted(this.sql)}").wait()
    return time.perf_counter() - begin


def left(tables: TableEnvironment, this: Asked, data: dict[str, str], name: str) -> tuple[float, pa.Table]:
    """The rows that are left of a query in the end, from a file of all its changes."""
    sources(tables, this, data)
    folder = Path(this.work) / name
    options = (
        "'debezium-json.timestamp-format.standard'='ISO-8601', 'debezium-json.encode.decimal-as-plain-number'='true'"
    )
    begin = time.perf_counter()
    tables.execute_sql(
        f"""CREATE TABLE out_{name} WITH ('connector'='filesystem', 'path'='file://{folder}', 'format'='debezium-json',
            {options}) AS {quoted(this.sql)}"""
    ).wait()
    seconds = time.perf_counter() - begin
    schema = tables.from_path(f"out_{name}").get_schema()
    names = schema.get_field_names()
    times = ["timestamp" in str(kind).lower() for kind in schema.get_field_data_types()]
    rows: Counter[tuple[Any, ...]] = Counter()
    for path in folder.rglob("part-*"):
        with path.open() as lines:
            for line in lines:
                change = json.loads(line)
                row = change["after"] if change["op"] == "c" else change["before"]
                rows[tuple(row[column] for column in names)] += 1 if change["op"] == "c" else -1
    if any(count < 0 for count in rows.values()):
        raise SystemExit("rows were taken back that were never given")
    values = zip(*rows.elements(), strict=True) if rows.total() else [() for _ in names]
    columns = {}
    for column, is_time, found in zip(names, times, values, strict=True):
        given = pa.array(list(found), pa.string() if is_time else None)
        columns[column] = pc.replace_substring(given, "Z", "").cast(pa.timestamp("us")) if is_time else given
    return seconds, pa.table(columns)


def quoted(sql: str) -> str:
    """SQL with quotes around the one column whose name is a word of Flink's own."""
    return re.sub(r"\bdateTime\b", "`dateTime`", sql)


def main() -> None:
    this = asked()
    tables = environment(this)
    warm, rows = left(tables, this, this.warm_up, "checked")
    pq.write_table(rows, this.out_warm_up)
    run(tables, this, this.data, "warm_up")
    seconds = run(tables, this, this.data, "timed")
    answer(seconds, INSIDE, version("apache-flink"), warm_up_seconds=warm)


if __name__ == "__main__":
    main()
