"""An archive of the Java classes that Spark needs, so that its Java process starts faster.

Java maps the archive instead of reading, verifying and linking some fifteen thousand classes from jars. It is built
once per machine, user, Java and Spark, on request: `python -m millstream.engine.spark.class_archive`. A session uses it
if it exists. Java itself compares it with its own version and with the jars, and ignores it if they differ. Java does
not detect a truncated archive and crashes; the name of the file therefore contains its length.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream import paths
from millstream.engine.spark.java import java_command
from millstream.errors import EngineFailed

QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""An archive that does not fit must not print a warning on the standard output of a command."""


def archive_path() -> Path | None:
    """The archive for this Java and this Spark; None if it is missing or incomplete."""
    for path in sorted(_folder().glob(f"{_name()}-*.jsa")):
        if path.stat().st_size == int(path.stem.rpartition("-")[2]):
            return path
    return None


def archive_options() -> tuple[str, ...]:
    """The Java options that use the archive; none if there is no archive."""
    path = archive_path()
    if path is None or " " in str(path):  # options of Java are split at spaces
        return ()
    return (f"-XX:SharedArchiveFile={path}", "-Xshare:auto", *QUIET)


def make_archive() -> Path:
    """Run a Spark session through work similar to an epoch, and archive the classes that it loaded."""
    kept = _folder()
    kept.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=kept) as folder:
        made = Path(folder) / "made.jsa"
        trained = subprocess.run(
            [sys.executable, "-m", "millstream.engine.spark.class_archive", str(made)],
            capture_output=True,
            text=True,
            check=False,
        )
        if trained.returncode or not made.is_file():
            raise EngineFailed(
                "Java has not created an archive of its classes",
                detail=(trained.stderr or trained.stdout).strip()[-500:] or None,
                hint="flows run without it; `millstream doctor` checks Java",
            )
        with made.open("rb") as file:
            os.fsync(file.fileno())
        path = kept / f"{_name()}-{made.stat().st_size}.jsa"
        for old in kept.glob(f"{_name()}-*.jsa"):
            paths.delete_file(old)
        paths.rename(made, path)
    return path


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "millstream"


def _name() -> str:
    java = os.path.realpath(java_command() or "java")
    key = hashlib.sha256(f"{java} {sys.prefix}".encode()).hexdigest()[:12]
    return f"spark-{version('pyspark')}-{key}"


def _train(made: Path) -> None:
    """Do the work in a separate process. Its Java writes the archive on exit, which takes a while."""
    from pyspark import SparkContext

    from millstream.engine.spark import session

    os.environ["XDG_CACHE_HOME"] = str(made.parent)  # do not build upon an existing archive
    log = made.parent / "spark.log"
    options = session.settings(log, "2g")["spark.driver.extraJavaOptions"]
    extra = {"spark.driver.extraJavaOptions": f"{options} -XX:ArchiveClassesAtExit={made} {' '.join(QUIET)}"}
    spark = session.start(log, extra=extra)
    rows = spark.range(1000).selectExpr("id AS n", "timestamp_micros(id) AS ts", "CAST(id AS STRING) AS text")
    for form in ("json", "csv", "parquet"):
        folder = str(made.parent / form)
        rows.write.format(form).save(folder)
        read = spark.read.schema("n BIGINT, ts TIMESTAMP, text STRING").format(form).load(folder)
        read.where("n > 1").groupBy("n", "ts").agg({"n": "sum", "text": "max"}).toArrow()
    table = spark.createDataFrame(rows.toArrow())
    spark.createDataFrame([], "n BIGINT, `$part` INT").selectExpr("n AS m").schema.json()
    joined = table.join(rows.select("n"), "n", "left").repartition(2, "n").persist()
    joined.mapInArrow(_same, joined.select("n").schema).toArrow()
    gateway: Any = SparkContext._gateway
    spark.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(["n"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _train(Path(sys.argv[1]))
    else:
        sys.stdout.write(f"{make_archive()}\n")
