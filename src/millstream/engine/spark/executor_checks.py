"""Checks all executors at once: what is installed there, whether they can reach the state, and what time their clocks
show.

One barrier job has as many tasks as run at the same time, so every executor gets one. The driver compares what they
report with itself.
"""

from __future__ import annotations

import os
import platform
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import orjson
import pyarrow as pa

from millstream.errors import MillstreamError
from millstream.state.storage import Storage

PACKAGES = ("millstream", "pyspark", "pyarrow", "polars", "duckdb", "numpy", "orjson", "sqlglot")
_OF_DRIVER, _OF_TASK = b"of the driver", b"of a task"
SKEW_SECONDS = 5.0
"""A clock that differs by more is reported."""


@dataclass(frozen=True)
class ExecutorReport:
    """What an executor says about itself, and what is wrong with it."""

    host: str
    folder: str
    """Its working directory, which distinguishes the executors of one machine."""
    user: str
    python: str
    java: str
    packages: dict[str, str]
    storage: str
    """How the storage of state answered; empty if none was checked."""
    skew: float
    """Seconds by which its clock differs at least; negative if it is slow."""
    problems: tuple[str, ...] = field(default=())


def check_executors(spark: Any, storage: Storage | None = None) -> list[ExecutorReport]:
    """Check every executor. Files that are written to the storage are removed again."""
    name = f"doctor-{secrets.token_hex(6)}"
    if storage is not None:
        storage.put(name, _OF_DRIVER)
    try:
        _reports(spark, None, name)  # starts Python there, so that the second job is short
        began = time.time()
        found = _reports(spark, storage, name)
        ended = time.time()
        unread = set() if storage is None else {f["wrote"] for f in found if f["wrote"]} - _readable(storage, found)
    finally:
        if storage is not None:
            storage.delete([name, *(f"{name}-{n}" for n in range(_tasks(spark)))])
    reports: dict[tuple[str, str], ExecutorReport] = {}
    for values in found:
        report = _judged(values, began, ended, unread)
        reports.setdefault((report.host, report.folder), report)
    return sorted(reports.values(), key=lambda r: (r.host, r.folder))


def versions() -> dict[str, str]:
    """The packages that this process and the executors must have in the same version."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def _tasks(spark: Any) -> int:
    return max(1, int(spark.sparkContext.defaultParallelism))


def _reports(spark: Any, storage: Storage | None, name: str) -> list[dict[str, Any]]:
    def report(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number, java in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                text = orjson.dumps(_facts(storage, name, number, java)).decode()
                yield pa.record_batch([pa.array([text])], names=["report"])

    tasks = _tasks(spark)
    barrier = spark.conf.get("spark.dynamicAllocation.enabled", "false") != "true"  # Spark refuses both together
    frame = spark.range(0, tasks, 1, tasks).selectExpr(
        "id", "java_method('java.lang.System', 'getProperty', 'java.version') AS java"
    )
    rows = frame.mapInArrow(report, "report STRING", barrier=barrier).toArrow()
    return [orjson.loads(text) for text in rows.column(0).to_pylist()]


def _facts(storage: Storage | None, name: str, number: int, java: str) -> dict[str, Any]:
    """What a task finds where it runs."""
    answer, wrote = "", ""
    if storage is not None:
        began = time.perf_counter()
        try:
            if storage.map(name).to_pybytes() != _OF_DRIVER:
                answer = "the driver's file has different contents here"
            storage.put(f"{name}-{number}", _OF_TASK)
            wrote = f"{name}-{number}"
        except FileNotFoundError:
            answer = "the file that the driver has written does not exist here"
        except (MillstreamError, OSError) as error:
            answer = str(error).splitlines()[0]
        answer = answer or f"{(time.perf_counter() - began) * 1000:.0f} ms"
    return {
        "host": socket.gethostname(),
        "folder": os.getcwd(),
        "user": str(os.getuid()),
        "python": platform.python_version(),
        "java": java,
        "packages": versions(),
        "storage": answer,
        "wrote": wrote,
        "time": time.time(),
    }


def _readable(storage: Storage, found: list[dict[str, Any]]) -> set[str]:
    """The files of tasks that the driver reads."""
    readable = set()
    for name in (f["wrote"] for f in found if f["wrote"]):
        try:
            if storage.map(name).to_pybytes() == _OF_TASK:
                readable.add(name)
        except (MillstreamError, OSError):
            continue
    return readable


def _judged(values: dict[str, Any], began: float, ended: float, unread: set[str]) -> ExecutorReport:
    """A report with what differs from this process."""
    problems = []
    own, python = versions(), platform.python_version()
    if values["python"].split(".")[:2] != python.split(".")[:2]:
        problems.append(f"it has Python {values['python']}, and this process has {python}")
    for name, version in own.items():
        there = values["packages"].get(name, "missing")
        if there != version:
            problems.append(f"it has {name} {there}, and this process has {version}")
    if values["storage"] and not values["storage"].endswith(" ms"):
        problems.append(f"the storage of state: {values['storage']}")
    elif values["wrote"] in unread:
        problems.append("this process cannot read what it writes to the storage of state")
    skew = min(0.0, values["time"] - began) + max(0.0, values["time"] - ended)
    if abs(skew) > SKEW_SECONDS:
        problems.append(f"its clock is {abs(skew):.0f} seconds {'ahead' if skew > 0 else 'behind'}")
    kept = {k: values[k] for k in ("host", "folder", "user", "python", "java", "packages", "storage")}
    return ExecutorReport(**kept, skew=skew, problems=tuple(problems))
