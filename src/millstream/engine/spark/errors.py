"""Translates Spark's exceptions into Millstream errors, in this one place. The full report goes to the log file that
the message names.
"""

from __future__ import annotations

import re
import subprocess
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from millstream.errors import (
    DiskFull,
    EngineFailed,
    EngineLost,
    HomeDamaged,
    MemoryExceeded,
    MillstreamError,
    SchemaError,
    SourceMissing,
    SourceUnreadable,
    StorageFailed,
    UserCodeFailed,
)

_MORE_MEMORY = 'give it more with ms.open(..., memory="4g") or `millstream run --memory 4g`'


_A_MOMENT = 2.0
"""Seconds that a disconnected Java process may take to end."""


@contextmanager
def translated(log: Path | None) -> Iterator[None]:
    """Turn exceptions that Spark raises in the block into a MillstreamError."""
    try:
        yield
    except MillstreamError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno == 28:
            raise DiskFull(
                "no space left on the disk", hint="free some space and start again; nothing is lost"
            ) from error
        if _is_lost(error):
            raise EngineLost(
                "Spark's Java process has ended in the middle of the work",
                detail=_write(error, log),
                hint=f"most likely it ran out of memory; {_MORE_MEMORY}. What was committed is safe",
            ) from error
        if not _from_spark(error):
            raise
        raise translate(error, log) from error


def has_ended(*, wait: float = 0.0) -> bool:
    """Whether the Java process of this process's session has ended. Waits for its end up to `wait` seconds."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    try:
        process.wait(timeout=wait)
    except subprocess.TimeoutExpired:
        return False
    return True


def _is_lost(error: Exception) -> bool:
    """Whether an error means that the connection to Java is lost. The Java process may still be ending."""
    name = type(error).__name__
    broken = isinstance(error, ConnectionError | EOFError) or name == "Py4JNetworkError"
    doubtful = broken or (type(error).__module__.startswith("py4j") and name != "Py4JJavaError")
    return has_ended(wait=_A_MOMENT if doubtful else 0.0) or broken


def translate(error: Exception, log: Path | None) -> MillstreamError:
    """The Millstream error for an error of Spark."""
    text = str(error)
    condition = _condition(error)
    where = _write(error, log)
    if "No space left on device" in text or "errors.DiskFull:" in text:
        return DiskFull(
            "no space left on the disk",
            hint="free some space and start again; nothing that was committed is lost",
        )
    of_task = _of_task(text, where)
    if of_task is not None:
        return of_task
    if (
        "FAILED_READ_FILE.FILE_NOT_EXIST" in condition
        or "FileNotFoundException" in text
        or condition == "PATH_NOT_FOUND"
        or "errors.SourceMissing:" in text
    ):
        return SourceMissing(
            f"a file to be read is missing: {_file(text)}",
            detail=where,
            hint="put it back: files of a source must stay until they are read",
        )
    if condition.startswith("FAILED_READ_FILE") or "CSV header does not conform" in text or "MALFORMED" in condition:
        return SourceUnreadable(
            f"the file {_file(text)} cannot be read as the source says",
            detail=_first(text, where),
            hint="correct the format or schema of the source, or move the file out of the folder",
        )
    if condition in ("UNRESOLVED_COLUMN.WITH_SUGGESTION", "UNRESOLVED_ROUTINE") or condition.startswith(
        "DATATYPE_MISMATCH"
    ):
        return SchemaError(_first(text, None) or condition, detail=where)
    if "spark.driver.maxResultSize" in text:
        return MemoryExceeded(
            "an epoch brings more than 1 GiB of rows from Spark to this process at once",
            detail=where,
            hint="let views produce fewer rows per record, or give sources a smaller max_rows",
        )
    if condition.startswith("INVALID_DRIVER_MEMORY"):
        return EngineFailed("Spark cannot start with so little memory", detail=where, hint=_MORE_MEMORY)
    return EngineFailed(
        _message(condition, text),
        detail=_first(text, where),
        hint="the epoch was not committed; it is run again on the next start",
    )


def _of_task(text: str, where: str | None) -> MillstreamError | None:
    """The error that a task has met in user code, in the state of its flow, or in a file of a source."""
    if "UserCodeFailed:" in text or "millstream.errors.UserCodeFailed" in text:
        called = re.search(r"UserCodeFailed: ([^\n]+)", text)
        message = called[1] if called else "user code failed"
        return UserCodeFailed(message, detail=where, hint="fix the function and start again")
    said = re.search(
        r"millstream\.errors\.(HomeDamaged|StorageFailed|SourceUnreadable): ([^\n]+)((?:\n  [^\n]+)*)", text
    )
    if said is None:
        return None
    more = [line.strip() for line in said[3].splitlines() if line.strip()]
    hint = next((m.removeprefix("hint: ") for m in more if m.startswith("hint: ")), None)
    detail = next((m for m in more if not m.startswith("hint: ")), None)
    kinds = {"HomeDamaged": HomeDamaged, "StorageFailed": StorageFailed, "SourceUnreadable": SourceUnreadable}
    return kinds[said[1]](said[2], detail=detail, hint=hint)


def _message(condition: str, text: str) -> str:
    """The message that Spark stopped with. The message of a check inside an expression (as in
    `plan/rules/output_bounds.py`) is used unchanged.
    """
    said = re.search(r"\[USER_RAISED_EXCEPTION\] (.+?)\.?(?: SQLSTATE|$)", text, re.MULTILINE)
    if said:
        return said[1]
    return f"Spark stopped with {condition}" if condition else "Spark stopped with an error"


def _from_spark(error: Exception) -> bool:
    module = type(error).__module__
    return module.startswith(("pyspark", "py4j"))


def _condition(error: Exception) -> str:
    getter = getattr(error, "getCondition", None)
    try:
        found = getter() if getter else None
    except Exception:  # noqa: BLE001 - a broken gateway must not hide the first error
        found = None
    if found:
        return str(found)
    match = re.search(r"\[([A-Z][A-Z0-9_.]+)\]", str(error))
    return match[1] if match else ""


def _first(text: str, where: str | None) -> str | None:
    """The first sentence of Spark's message, and where to find the rest."""
    line = next((part.strip() for part in text.splitlines() if part.strip()), "")
    line = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", re.sub(r"^.*?SparkException: ", "", line))[:300]
    line = re.sub(r"\s*If necessary[, ].*?(?= SQLSTATE|$)", "", line)  # advice about settings that users cannot change
    place = re.search(r"== SQL[^\n]*==\n([^\n]+)\n", text)  # the expression that failed
    line += f" in {_readable(place[1])}" if place is not None and line else ""
    return "; ".join(p for p in (line, where) if p) or None


def _readable(sql: str) -> str:
    """An expression without the name that Millstream generates, and without quotes around plain names."""
    return re.sub(r"`([A-Za-z_]\w*)`", r"\1", re.sub(r" AS `\$\w+`$", "", sql.strip()))[:200]


def _file(text: str) -> str:
    match = re.search(r"file:(/[^\s,;\]]+)|SourceMissing: [^\n:]*: (/[^\n]+)", text)
    return re.sub(r"\.$", "", re.sub("^/+", "/", match[1] or match[2])) if match else "(see the log)"


def _write(error: Exception, log: Path | None) -> str | None:
    if log is None:
        return None
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file:
            file.write(f"\n{datetime.now(UTC).isoformat()} ---- error ----\n")
            file.write("".join(traceback.format_exception(error)))
    except OSError:
        return None
    return f"the full report is in {log}"
