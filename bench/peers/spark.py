"""PySpark Structured Streaming, tuned: one watermarked window count over the folder, everything available at
once.

In-memory state was faster than RocksDB with changelog (--option spark.state=rocksdb) in six of seven pairs of
runs. All files are one batch: 0.47 M events/s against 0.33 with five files each (--option spark.files=5), one run
each. Shuffle partitions = cores, adaptive execution and UI off and the quicker checkpoint file manager follow
notes/spark.md and were not measured here.

Spark refuses update mode for sessions. In complete mode all sessions are given once, at the end of the one batch, and
none is ever forgotten; that took less CPU time than append mode (--option spark.mode=append) in 16 of 18 pairs of runs:
append mode needs a second batch to give the sessions that have closed. Merging sessions before the shuffle took less in
13 of 18. Append mode never gives those that are open at the end, so there it also reads one
bid from the year 2100.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.peers.protocol import Task, answer, task, write_result

SCHEMA = "auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP"
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
INSIDE = "start of the query to its end: reading, state, checkpoint, rows of every batch; not JVM start, warm-up"


def session(this: Task) -> SparkSession:
    builder = (
        SparkSession.builder.master("local[*]")
        .config("spark.driver.memory", "8g")
        .config("spark.driver.extraJavaOptions", "-XX:+UseParallelGC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(os.cpu_count()))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.sql.streaming.checkpointFileManagerClass", FILE_MANAGER)
        .config("spark.sql.streaming.metricsEnabled", "false")
        .config("spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition", "true")
        .config("spark.local.dir", this.work)
        .config("spark.log.level", "ERROR")
    )
    if this.options.get("state") == "rocksdb":
        builder = (
            builder.config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
            .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
            .config("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows", "false")
        )
    return builder.getOrCreate()


def mode(this: Task) -> str:
    """The output mode."""
    return this.options.get("mode", "complete") if this.gap else "update"


def counts(bids: DataFrame, this: Task) -> DataFrame:
    """The bids per key and window or session."""
    name, window = "window", f.window("date_time", f"{this.size} seconds", f"{this.slide} seconds")
    if this.gap:
        name, window = "session_window", f.session_window("date_time", f"{this.gap} seconds")
    ends = [f.unix_micros(f"{name}.end").alias("end_us")] if this.gap else []
    return (
        bids.withWatermark("date_time", f"{this.lateness} seconds")
        .groupBy(this.key, window)
        .agg(f.count("*").alias("bids"))
        .select(f.col(this.key).alias("key"), f.unix_micros(f"{name}.start").alias("start_us"), *ends, "bids")
    )


def with_last_bid(spark: SparkSession, this: Task, data: str) -> str:
    """The folder `data` and one with a bid that is later than all others, so that all other sessions close."""
    last = f"{this.work}/last-bid"
    bid = spark.createDataFrame([(-1, -1, 0, datetime(2100, 1, 1, tzinfo=UTC))], SCHEMA)
    bid.write.mode("overwrite").format(this.format).save(last)
    return f"/{{{data[1:]},{last[1:]}}}"


def run(spark: SparkSession, this: Task, data: str, name: str) -> tuple[float, list[Any]]:
    """One whole query, and the rows of every batch."""
    reader = spark.readStream.schema(SCHEMA).format(this.format)
    if "files" in this.options:
        reader = reader.option("maxFilesPerTrigger", this.options["files"])
    if mode(this) == "append":
        data = with_last_bid(spark, this, data)
    kept: list[Any] = []
    rows = f"{this.work}/rows-{name}"

    def keep(frame: DataFrame, batch: int) -> None:
        if this.options.get("sink") == "arrow":
            kept.append(frame.toArrow())
        else:
            frame.write.parquet(f"{rows}/batch={batch}")

    begin = time.perf_counter()
    query = (
        counts(reader.load(data), this)
        .writeStream.outputMode(mode(this))
        .foreachBatch(keep)
        .option("checkpointLocation", f"{this.work}/checkpoint-{name}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds = time.perf_counter() - begin
    if this.options.get("sink") != "arrow":
        kept = [spark.read.parquet(f"{rows}/batch={i}").toArrow() for i in range(len(os.listdir(rows)))]
    return seconds, kept


def last_value(batches: list[pa.Table], mode: str) -> pa.Table:
    """What all batches come to. Update mode repeats a key whenever it changes; the last row counts, and counts only
    grow. Complete mode repeats everything, append mode nothing.
    """
    if mode == "complete":
        return batches[-1]
    rows = pa.concat_tables(batches)
    if len(batches) == 1 or mode == "append":
        return rows
    return rows.group_by(["key", "start_us"]).aggregate([("bids", "max")]).rename_columns(["key", "start_us", "bids"])


def main() -> None:
    this = task()
    spark = session(this)
    warm, _ = run(spark, this, this.warm_up, "warm-up")
    run(spark, this, this.data, "warm-up-2")
    seconds, batches = run(spark, this, this.data, "timed")
    write_result(last_value(batches, mode(this)), this.out)
    answer(seconds, INSIDE, pyspark.__version__, warm_up_seconds=warm, batches=len(batches), mode=mode(this))
    spark.stop()


if __name__ == "__main__":
    main()
