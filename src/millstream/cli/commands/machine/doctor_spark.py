"""The doctor's checks that need Spark: that it starts, and that every executor has what the tasks of a flow need."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.cli.commands.machine.check_result import BROKEN, OK, CheckResult
from millstream.cli.output import format_seconds, plural
from millstream.errors import MillstreamError, plain
from millstream.settings import SPARK_MASTER, find
from millstream.state.storage import Storage

if TYPE_CHECKING:
    from millstream.engine.spark.executor_checks import ExecutorReport

COLUMNS = ("executor", "user", "python", "java", "storage", "clock", "problems")


def check_spark(home: Path, master: str | None, storage: Storage | None, *, executors: bool) -> Iterator[CheckResult]:
    """Check that Spark starts, counts, and reaches Python on its executors; then each of them, if asked to."""
    with _session(find(SPARK_MASTER, master, home=home).value) as start:
        try:
            begun = time.perf_counter()
            spark = start()
            started = time.perf_counter()
            answer = spark.range(1000).mapInArrow(_same, "id BIGINT").count()
            counted = time.perf_counter()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            yield _failed("spark", error)
            return
        if answer != 1000:
            yield CheckResult("spark", BROKEN, f"a small job counted {answer} of 1000 rows", "reinstall pyspark")
            return
        took, job = format_seconds(started - begun), format_seconds(counted - started)
        yield CheckResult("spark", OK, f"started in {took}, first job with a Python worker in {job}")
        if executors:
            yield from _check_executors(spark, storage)


def check_storage(storage: Storage) -> CheckResult:
    """Check that this process can write, read and delete where state is."""
    name = f"doctor-{secrets.token_hex(6)}"
    try:
        began = time.perf_counter()
        storage.put(name, b"x")
        read = storage.map(name).to_pybytes()
        storage.delete([name])
        took = format_seconds(time.perf_counter() - began)
    except (MillstreamError, OSError) as error:
        return _failed("state", error)
    if read != b"x":
        return CheckResult("state", BROKEN, f"{storage.place()} returns another content than was written")
    return CheckResult("state", OK, f"{storage.place()}, written, read and deleted in {took}")


def _check_executors(spark: Any, storage: Storage | None) -> Iterator[CheckResult]:
    from millstream.engine.spark.errors import translated
    from millstream.engine.spark.executor_checks import check_executors

    try:
        with translated(None):
            reports = check_executors(spark, storage)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        yield _failed("executors", error)
        return
    broken = [r for r in reports if r.problems]
    rows = tuple(_row(r) for r in reports)
    if not broken:
        yield CheckResult("executors", OK, f"{plural(len(reports), 'executor')}, all alike", table=(COLUMNS, *rows))
        return
    text = f"{len(broken)} of {plural(len(reports), 'executor')}: {broken[0].problems[0]}"
    repair = "make the machines alike, or send the environment: `millstream cluster pack`; see docs/guide/cluster.md"
    yield CheckResult("executors", BROKEN, text, repair, table=(COLUMNS, *rows))


def _row(report: ExecutorReport) -> tuple[str, ...]:
    clock = "same" if abs(report.skew) < 1 else f"{report.skew:+.0f} s"
    where = f"{report.host} {Path(report.folder).name}"
    problems = "; ".join(report.problems)
    return where, report.user, report.python, report.java, report.storage or "not checked", clock, problems


def _failed(what: str, error: Exception) -> CheckResult:
    if isinstance(error, MillstreamError):
        said = "; ".join(p for p in (error.message, error.detail) if p)
        return CheckResult(what, BROKEN, said, error.hint or "")
    return CheckResult(what, BROKEN, f"a small job failed: {plain(next(iter(str(error).strip().splitlines()), ''))}")


@contextmanager
def _session(master: str) -> Iterator[Callable[[], Any]]:
    """How to start a session; it ends with the block."""
    from millstream.engine.spark import session

    with tempfile.TemporaryDirectory(prefix="millstream-doctor-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "logs" / "spark.log"
        try:
            yield lambda: session.start(log, master=master)
        finally:
            _quietly(session.stop)


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    """Return batches unchanged, on an executor."""
    yield from batches


def _quietly(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:  # noqa: BLE001 - an error while Spark stops must not hide the findings
        return
