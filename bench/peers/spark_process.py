"""PySpark Structured Streaming in a contest: `transformWithState` on rows, with one value of state per key.

Its state is in RocksDB, which is the only place it can be; its Python needs protobuf, so it has an environment of its
own. All files are one batch. Rows of a key are handed to the processor together, so the state is read and written once
per key and batch, its quickest way.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import pyspark
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from bench.peers.protocol import COLUMNS, Asked, answer, asked
from bench.peers.spark_session import session

INSIDE = "start of the query to its end: reading, state, checkpoint, Parquet files; not JVM start, warm-up"


class Counted(StatefulProcessor):
    """How many bids a bidder has made up to each one."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._bids = handle.getValueState("bids", "bids BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        bids = self._bids.get()[0] if self._bids.exists() else 0
        for _ in rows:
            bids += 1
            yield Row(bidder=key[0], bids=bids)
        self._bids.update((bids,))

    def close(self) -> None:
        pass


def run(spark: SparkSession, this: Asked, data: dict[str, str], name: str) -> tuple[float, str]:
    """One whole query: its seconds, and the folder with its rows."""
    rows = f"{this.work}/rows-{name}"
    begin = time.perf_counter()

    def keep(frame: DataFrame, batch: int) -> None:
        frame.write.parquet(f"{rows}/batch={batch}")

    bids = spark.readStream.schema(COLUMNS["bid"]).json(f"{data['bid']}/json")
    counted = bids.groupBy("bidder").transformWithState(
        statefulProcessor=Counted(),
        outputStructType="bidder BIGINT, bids BIGINT",
        outputMode="Append",
        timeMode="None",
    )
    query = (
        counted.writeStream.outputMode("append")
        .foreachBatch(keep)
        .option("checkpointLocation", f"{this.work}/checkpoint-{name}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return time.perf_counter() - begin, rows


def main() -> None:
    this = asked()
    spark = session(this.work, this.options, rocksdb=True)
    warm, _ = run(spark, this, this.warm_up, "warm-up")
    run(spark, this, this.data, "warm-up-2")
    seconds, rows = run(spark, this, this.data, "timed")
    spark.read.parquet(rows).drop("batch").coalesce(1).write.parquet(f"{this.work}/whole")
    next(Path(this.work, "whole").glob("*.parquet")).rename(this.out)
    answer(seconds, INSIDE, pyspark.__version__, warm_up_seconds=warm)
    spark.stop()


if __name__ == "__main__":
    main()
