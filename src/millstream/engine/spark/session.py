"""The one Spark session of a process: settings for many small batch jobs, logs in a file. It uses the loopback
interface only, unless its master is on another machine (`cluster.py`).

`engine/spark_engines.py` starts it and hands it to the engines.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from millstream.engine.spark import cluster
from millstream.engine.spark.class_archive import archive_options
from millstream.engine.spark.errors import has_ended, translated
from millstream.engine.spark.foreign_warnings import hide_foreign_warnings
from millstream.engine.spark.java import require_java
from millstream.engine.spark.pools import ALLOCATIONS
from millstream.errors import DefinitionError, MillstreamError
from millstream.settings import DRIVER_HOST, EXECUTOR_MEMORY, SPARK_MASTER, find

_LOCK = threading.Lock()
_WARMING = 20.0
"""Seconds that an exiting process waits, at most, for the first small job of a new session."""

LIMIT_RULE = "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughLimitAndOffset"
"""A rule of Spark 4.3 that makes results wrong: it moves a scalar subquery below the LIMIT of an ordered relation. The
subquery becomes a join there, and the ORDER BY before a join is dropped: any rows are taken instead of the first.
"""

LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {path}
appender.file.filePattern = {pattern}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
logger.python.name = org.apache.spark.api.python
logger.python.level = error
"""


def settings(log: Path, memory: str, master: str | None = None) -> dict[str, str]:
    """The settings of a session; docs/decisions/0001 explains them."""
    home = log.parent.parent
    chosen = find(SPARK_MASTER, master, home=home).value
    return {
        "spark.master": chosen,
        "spark.app.name": "millstream",
        "spark.driver.memory": memory,
        **cluster.network_settings(chosen, find(DRIVER_HOST, home=home).value),
        "spark.pyspark.python": sys.executable,
        **cluster.executor_settings(chosen, find(EXECUTOR_MEMORY, home=home).value, home),
        "spark.hadoop.fs.defaultFS": "file:///",  # paths are those of the file system, whatever Hadoop is set to
        "spark.driver.extraJavaOptions": " ".join(
            (
                "-XX:+UseParallelGC",  # scans are some 15 % faster than with G1, and the heap is small
                "-XX:+ExitOnOutOfMemoryError",  # a thread that dies of it would leave its job waiting forever
                *archive_options(),
                f"-Dlog4j2.configurationFile={_properties(log).absolute().as_uri()}",  # no space: options end there
            )
        ),
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": str(_pools(log).absolute()),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.ui.retainedExecutions": "5",
        "spark.ui.retainedJobs": "5",
        "spark.ui.retainedStages": "5",
        "spark.ui.retainedTasks": "50",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),  # until the executors are known
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.runSQLOnFiles": "false",
        "spark.sql.variable.substitute": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.execution.arrow.localRelationThreshold": "4MB",  # tasks read larger relations, not the driver
        "spark.sql.files.ignoreMissingFiles": "false",
        "spark.sql.caseSensitive": "true",
        "spark.sql.optimizer.excludedRules": LIMIT_RULE,
        "spark.speculation": "false",
        "spark.cleaner.periodicGC.interval": "10min",
        "spark.sql.codegen.cache.maxEntries": "500",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "millstream.engine.spark.worker_daemon",
        "spark.executorEnv.POLARS_MAX_THREADS": "1",  # one task per core is enough
        "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    }


def _properties(log: Path) -> Path:
    return log.with_suffix(".properties")


def _pools(log: Path) -> Path:
    return log.with_suffix(".pools.xml")


def log_settings(log: Path) -> str:
    """The content of the file that makes Spark log to `log`, whatever characters its path has."""
    path = json.dumps(str(log))[1:-1]  # a file of properties is Latin-1, with the escapes of JSON
    return LOG4J.format(path=path, pattern=path.replace("%", "%%"))


def start(log: Path, *, memory: str = "2g", master: str | None = None, extra: Mapping[str, str] | None = None) -> Any:
    """The session; starts it if there is none yet. Spark writes its own messages to `log`."""
    with _LOCK, translated(log):
        from pyspark.sql import SparkSession

        if has_ended():
            _forget()
        running = _usable()
        if running is not None:
            return _of_master(running, master)
        require_java()
        log.parent.mkdir(parents=True, exist_ok=True)
        _properties(log).write_text(log_settings(log))
        _pools(log).write_text(ALLOCATIONS)
        chosen: dict[str, Any] = {**settings(log, memory, master), **(extra or {})}
        os.environ["PYSPARK_PYTHON"] = chosen["spark.pyspark.python"]
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        cluster.check_master(chosen["spark.master"])
        if "spark.driver.bindAddress" in chosen:
            os.environ.setdefault("SPARK_LOCAL_IP", chosen["spark.driver.bindAddress"])
        for name in ("SQLQueryContextLogger", "py4j"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # our errors state it in one line
        logging.getLogger().addFilter(_is_news)
        hide_foreign_warnings()
        _launch(log, chosen)
        spark = SparkSession.builder.config(map=chosen).getOrCreate()
        try:
            cluster.await_executor(spark, chosen["spark.master"], chosen.get("spark.executor.memory", ""))
        except MillstreamError:
            spark.stop()
            raise
        return spark


def _usable() -> Any:
    """The running session; None if there is none. One that its master has ended is closed."""
    from pyspark.sql import SparkSession

    running = SparkSession._instantiatedSession
    context = None if running is None else running.sparkContext._jsc
    if running is None or context is None:
        return None
    if context.sc().isStopped():
        running.stop()
        return None
    return running


def _of_master(running: Any, master: str | None) -> Any:
    """A running session, if it uses this master."""
    if master is not None and running.sparkContext.master != master:
        raise DefinitionError(
            f"Spark runs with the master {running.sparkContext.master} in this process, not with {master}",
            hint="a process has one Spark session: use one master, or another process",
        )
    return running


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a log record is useful. Our errors already report that Java has disconnected, which py4j logs with a
    traceback.
    """
    return record.msg != "Exception while sending command."


def begin(log: Path, *, memory: str = "2g", master: str | None = None, python: bool = False) -> Future[Any]:
    """Start the session in a separate thread, so that the caller can do other work until it needs the session.

    A new session first runs a small job while the caller continues. That loads what every job needs and, with `python`,
    starts its Python workers.
    """
    found: Future[Any] = Future()
    fresh = not _is_running()  # this also imports pyspark, which two threads should not do at once

    def work() -> None:
        try:
            found.set_result(start(log, memory=memory, master=master))
        except BaseException as error:  # noqa: BLE001 - the caller that waits for the session gets it
            found.set_exception(error)
            return
        if fresh:
            with suppress(Exception):  # the first epoch meets the same error and reports it
                _warm(found.result(), python=python)

    thread = threading.Thread(target=work, name="millstream-session", daemon=True)
    thread.start()
    # Python aborts if it exits while a thread receives the rows of that job.
    atexit.register(thread.join, _WARMING)
    return found


def _is_running() -> bool:
    """Whether there is a usable session."""
    from pyspark.sql import SparkSession

    running = SparkSession._instantiatedSession
    return running is not None and running.sparkContext._jsc is not None and not has_ended()


def _warm(spark: Any, *, python: bool) -> None:
    """Run a job with one task, which leaves capacity for the tasks of the first epoch."""
    frame = spark.range(0, 1, 1, 1)
    (frame.mapInArrow(_unchanged, "id BIGINT") if python else frame).toArrow()


def _unchanged(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _launch(log: Path, chosen: Mapping[str, str]) -> None:
    """Start the JVM, with the log file as its standard error."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway:
        return
    conf = SparkConf().setAll(list(chosen.items()))
    with log.open("ab") as errors:
        SparkContext._ensure_initialized(gateway=launch_gateway(conf, {"stderr": errors}))


def _forget() -> None:
    """Discard a session whose JVM has ended, so that a new one can be started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.shutdown()
    if context is not None:
        context._jsc = None
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    if gateway is not None:
        with suppress(Exception):  # the connection is lost
            gateway.close()
        for pipe in (gateway.proc.stdin, gateway.proc.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def end() -> None:
    """End the Java process at once. The next caller that needs a session starts another."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait(timeout=30)


def stop() -> None:
    """Stop the session and its JVM."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with _LOCK:
        if has_ended():
            _forget()
        active = SparkSession._instantiatedSession
        if active is not None:
            active.stop()
        gateway = SparkContext._gateway
        if gateway is not None:
            gateway.shutdown()
            process = getattr(gateway, "proc", None)
            if process is not None and process.stdin is not None:
                process.stdin.close()
                process.wait(timeout=30)
            SparkContext._gateway = None
            SparkContext._jvm = None
