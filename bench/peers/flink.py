"""Flink SQL through PyFlink: the whole job runs in Flink's JVM, Python only submits it.

Settings: streaming mode, parallelism = cores, state on the heap, object reuse, no checkpoints (which favours
Flink: Millstream commits every epoch). The rows go to CSV files (--option flink.sink=blackhole for none,
unchecked). The wheel brings no Parquet format, so the input is JSON lines; Flink takes the files of a folder
in no order and would drop most rows as late, so it reads the two files of `json-lanes`, whose rows are the
same.
"""

from __future__ import annotations

import glob
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import pyarrow as pa
import pyarrow.csv
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from bench.peers.protocol import Task, answer, task, write_result

INSIDE = "submission of the SQL job to its end: planning, reading, windows, CSV files; not JVM start, warm-up"
LISTENERS = (
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


def environment(this: Task) -> TableEnvironment:
    settings = Configuration()
    for name, value in {
        "parallelism.default": str(os.cpu_count()),
        "pipeline.object-reuse": "true",
        "state.backend.type": "hashmap",
        "table.local-time-zone": "UTC",
        "taskmanager.memory.network.min": "128mb",
        "taskmanager.memory.network.max": "128mb",
        "io.tmp.dirs": this.work,
        **dict.fromkeys(LISTENERS, "127.0.0.1"),
        **{k: v for k, v in this.options.items() if "." in k},
    }.items():
        settings.set_string(name, value)
    return TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    )


def run(tables: TableEnvironment, this: Task, data: str, name: str) -> float:
    """One whole job, from submission to end."""
    data = f"{data}-lanes"
    sink = f"'connector'='filesystem', 'path'='file://{this.work}/{name}', 'format'='csv'"
    if this.options.get("sink") == "blackhole":
        sink = "'connector'='blackhole'"
    tables.execute_sql(
        f"""CREATE TABLE bids_{name} (auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP_LTZ(3),
            WATERMARK FOR date_time AS date_time - INTERVAL '{this.lateness}' SECOND)
            WITH ('connector'='filesystem', 'path'='file://{data}', 'format'='json',
                  'json.timestamp-format.standard'='ISO-8601')"""
    )
    tables.execute_sql(f"CREATE TABLE counts_{name} (key BIGINT, window_start TIMESTAMP(3), bids BIGINT) WITH ({sink})")
    window = f"TUMBLE(TABLE bids_{name}, DESCRIPTOR(date_time), INTERVAL '{this.size}' SECOND)"
    if this.slide != this.size:
        step, size = f"INTERVAL '{this.slide}' SECOND", f"INTERVAL '{this.size}' SECOND"
        window = f"HOP(TABLE bids_{name}, DESCRIPTOR(date_time), {step}, {size})"
    begin = time.perf_counter()
    tables.execute_sql(
        f"""INSERT INTO counts_{name} SELECT {this.key}, window_start, COUNT(*)
            FROM TABLE({window}) GROUP BY {this.key}, window_start, window_end"""
    ).wait()
    return time.perf_counter() - begin


def rows(folder: str) -> pa.Table:
    """What the job wrote."""
    parse = pa.csv.ConvertOptions(column_types={"start_us": pa.timestamp("us")})
    names = pa.csv.ReadOptions(column_names=["key", "start_us", "bids"])
    files = [path for path in glob.glob(f"{folder}/part-*") if os.path.getsize(path)]
    return pa.concat_tables([pa.csv.read_csv(path, read_options=names, convert_options=parse) for path in files])


def main() -> None:
    this = task()
    tables = environment(this)
    warm = run(tables, this, this.warm_up, "warm")
    run(tables, this, this.data, "warm_2")
    seconds = run(tables, this, this.data, "timed")
    if this.options.get("sink") != "blackhole":
        write_result(rows(f"{this.work}/timed"), this.out)
    answer(seconds, INSIDE, version("apache-flink"), warm_up_seconds=warm)


if __name__ == "__main__":
    main()
