"""PySpark Structured Streaming in a contest: its native join of two streams, with watermarks and a bound on the time
between the rows, so that both sides are forgotten in time. Settings are those of spark.py.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import pyspark
from pyspark.sql import DataFrame, SparkSession

from bench.peers.protocol import COLUMNS, Asked, answer, asked
from bench.peers.spark_session import session

INSIDE = "start of the query to its end: reading, state, checkpoint, Parquet files; not JVM start, warm-up"


def joined(spark: SparkSession, this: Asked, data: dict[str, str]) -> DataFrame:
    """The query over these files."""
    for kind, folder in data.items():
        stream = spark.readStream.schema(COLUMNS[kind]).json(f"{folder}/json")
        stream.withWatermark("dateTime", f"{this.lateness} seconds").createOrReplaceTempView(kind)
    return spark.sql(this.sql)


def run(spark: SparkSession, this: Asked, data: dict[str, str], name: str) -> tuple[float, str]:
    """One whole query: its seconds, and the folder with its rows."""
    rows = f"{this.work}/rows-{name}"
    begin = time.perf_counter()

    def keep(frame: DataFrame, batch: int) -> None:
        frame.write.parquet(f"{rows}/batch={batch}")

    query = (
        joined(spark, this, data)
        .writeStream.outputMode("append")
        .foreachBatch(keep)
        .option("checkpointLocation", f"{this.work}/checkpoint-{name}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return time.perf_counter() - begin, rows


def main() -> None:
    this = asked()
    spark = session(this.work, this.options)
    warm, _ = run(spark, this, this.warm_up, "warm-up")
    run(spark, this, this.data, "warm-up-2")
    seconds, rows = run(spark, this, this.data, "timed")
    spark.read.parquet(rows).drop("batch").coalesce(1).write.parquet(f"{this.work}/whole")
    next(Path(this.work, "whole").glob("*.parquet")).rename(this.out)
    answer(seconds, INSIDE, pyspark.__version__, warm_up_seconds=warm)
    spark.stop()


if __name__ == "__main__":
    main()
