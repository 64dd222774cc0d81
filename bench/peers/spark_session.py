"""The Spark session of the contests, with the settings that spark.py found best."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def session(work: str, options: dict[str, str], rocksdb: bool = False) -> SparkSession:
    """A session whose files are in `work`; `rocksdb` where in-memory state will not do, or is not asked for."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # some of its workers go by this and not by the setting
    builder = (
        SparkSession.builder.master("local[*]")
        .config("spark.driver.memory", "8g")
        .config("spark.driver.extraJavaOptions", "-XX:+UseParallelGC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.pyspark.python", sys.executable)
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(os.cpu_count()))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.sql.streaming.checkpointFileManagerClass", FILE_MANAGER)
        .config("spark.sql.streaming.metricsEnabled", "false")
        .config("spark.local.dir", work)
        .config("spark.sql.warehouse.dir", f"{work}/warehouse")
        .config("spark.log.level", "ERROR")
    )
    if rocksdb or options.get("state") == "rocksdb":
        builder = (
            builder.config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
            .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
            .config("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows", "false")
        )
    return builder.getOrCreate()
