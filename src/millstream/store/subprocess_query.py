"""Runs queries that may need much memory in a subprocess (`subprocess_child.py`).

The tables that a query reads are first copied to files, all as of one moment. So the process needs no access to the
store, and the system can limit its memory and kill it at any time.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import orjson
import pyarrow as pa

from millstream import paths
from millstream.budget import Budget
from millstream.errors import LimitExceeded, QueryError
from millstream.limits import Limits, Watch, too_large
from millstream.model.types.duckdb_values import DuckBatches
from millstream.store.names import quoted
from millstream.store.query_errors import explained
from millstream.store.subprocess_child import is_memory
from millstream.units import format_bytes

_CHILD = Path(__file__).with_name("subprocess_child.py")
_PREFIX = "question-"  # the name that version 0.1 uses too: its leftovers are found by it
_STDERR = "stderr.txt"
_COPIES = 8
"""The most that may be copied to files for a query, as a multiple of its memory."""


def discard_leftovers(temp: Path) -> None:
    """Delete what queries have left in the directory of an owner that was killed: copies of whole tables."""
    for folder in temp.glob(f"{_PREFIX}*"):
        if folder.is_dir():
            paths.delete_tree(folder, within=temp)


def answered(
    cursor: duckdb.DuckDBPyConnection,
    sql: str,
    tables: Sequence[str],
    inputs: Mapping[str, pa.Table],
    limits: Limits,
    temp: Path | None,
    budget: Budget,
) -> pa.Table:
    """Answer a validated SELECT over some tables of the store, and over the `inputs` ones. The cursor is in a
    transaction.
    """
    limits = budget.at_most(limits)
    if temp is not None:
        temp.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, dir=temp) as name,
        budget.claim() as claim,
        Watch(limits, cursor.interrupt) as watch,
    ):
        folder = Path(name)
        claim.reserve(limits.bytes, watch)
        _copy(cursor, folder, tables, inputs, limits, watch)
        (folder / "job.json").write_bytes(
            orjson.dumps(
                {
                    "sql": sql,
                    "bytes": limits.bytes,
                    "tables": {t: f"{i}.arrow" for i, t in enumerate([*tables, *inputs])},
                }
            )
        )
        exit_code = _run(folder, watch)
        if not (folder / "answer.arrow").exists():
            raise _why(folder, exit_code, limits)
        with pa.OSFile(str(folder / "answer.arrow")) as source, pa.ipc.open_stream(source) as reader:
            table = reader.read_all()
        claim.pass_on(table)
        return table


def _copy(
    cursor: duckdb.DuckDBPyConnection,
    folder: Path,
    tables: Sequence[str],
    inputs: Mapping[str, pa.Table],
    limits: Limits,
    watch: Watch,
) -> None:
    most, copied = limits.bytes * _COPIES, 0
    try:
        for i, name in enumerate(tables):
            reader = DuckBatches(cursor.sql(f"SELECT * FROM {quoted(name)}"), 100_000)
            with pa.OSFile(str(folder / f"{i}.arrow"), "wb") as sink, pa.ipc.new_stream(sink, reader.schema) as writer:
                for batch in reader:
                    watch.check()
                    copied += batch.nbytes
                    if most and copied > most:
                        raise LimitExceeded(
                            f"the query reads more than {format_bytes(most)}",
                            detail="it calls functions that may need much memory, so its input is copied",
                            hint="filter or aggregate in a view first, or SET query_memory = '4GB'",
                        )
                    writer.write_batch(batch)
    except (duckdb.Error, OSError):
        watch.check()  # it was interrupted
        raise
    finally:
        cursor.execute("ROLLBACK")
    for i, table in enumerate(inputs.values(), len(tables)):
        with pa.OSFile(str(folder / f"{i}.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)


def _run(folder: Path, watch: Watch) -> int:
    """Run the process to its end; it is killed when the watch requires it. Returns its exit code: -n after signal n."""
    with (folder / _STDERR).open("wb") as stderr:
        child = subprocess.Popen(
            [sys.executable, "-I", str(_CHILD), str(folder)],
            stdin=subprocess.PIPE,  # it ends with this process: nothing else would end it
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
    try:
        watch.stop_with(child.kill)
        child.wait()
    finally:
        assert child.stdin is not None
        child.stdin.close()
        if child.poll() is None:
            child.kill()
            child.wait()
        watch.stop_with(lambda: None)
    watch.check()
    return child.returncode


def _why(folder: Path, exit_code: int, limits: Limits) -> QueryError:
    """Return why there is no result. The system kills a process (signal 9) when it runs out of memory."""
    try:
        report = orjson.loads((folder / "error.json").read_bytes())
    except (OSError, ValueError):
        stderr = (folder / _STDERR).read_text(encoding="utf-8", errors="replace").strip()
        if exit_code == -signal.SIGKILL or is_memory(stderr):
            return too_large(limits)
        return QueryError(
            f"the process of the query ended unexpectedly, {_exit_text(exit_code)}",
            detail=stderr.splitlines()[-1] if stderr else None,
            hint="run the query again; if it fails again, simplify it, or SET query_memory = '4GB'",
        )
    return too_large(limits) if report["memory"] else explained(str(report["message"]))


def _exit_text(exit_code: int) -> str:
    if exit_code >= 0:
        return f"with exit code {exit_code}"
    try:
        return f"by the signal {signal.Signals(-exit_code).name}"
    except ValueError:  # a real-time signal has no name
        return f"by the signal {-exit_code}"
