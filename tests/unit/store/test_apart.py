"""Questions in a process of their own, when the process that asks is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import orjson
import pyarrow as pa
import pytest

from millstream.budget import Budget
from millstream.errors import LimitExceeded, QueryError
from millstream.limits import Limits
from millstream.store import subprocess_query
from millstream.store.duckdb import DuckStore

ENDLESS = "SELECT sum((a.range * b.range) % 7) FROM range(1000000000) a, range(100000) b"


def test_the_process_ends_with_the_one_that_asks(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_bytes(orjson.dumps({"sql": ENDLESS, "bytes": 1 << 28, "tables": {}}))
    child = subprocess.Popen([sys.executable, "-I", str(subprocess_query._CHILD), str(tmp_path)], stdin=subprocess.PIPE)
    try:
        assert child.stdin is not None
        child.stdin.close()  # as the system does when the process that asks is killed
        assert child.wait(timeout=30) == 1
    finally:
        child.kill()
        child.wait()


def test_what_a_killed_owner_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    temp = tmp_path / "tmp"
    (temp / "question-abc").mkdir(parents=True)
    (temp / "question-abc" / "0.arrow").write_bytes(b"rows")
    (temp / "other").write_bytes(b"kept")
    DuckStore(tmp_path / "store.duckdb", temp=temp).close()
    assert [f.name for f in temp.iterdir()] == ["other"]


def _answer(tmp_path: Path, sql: str = "SELECT 42 AS n") -> pa.Table:
    cursor = duckdb.connect()
    cursor.execute("BEGIN")
    limits = Limits(seconds=60, bytes=1 << 28)
    return subprocess_query.answered(cursor, sql, (), {}, limits, tmp_path / "tmp", Budget())


def test_a_query_is_answered_or_its_error_is_explained(tmp_path: Path) -> None:
    assert _answer(tmp_path).to_pylist() == [{"n": 42}]
    with pytest.raises(QueryError, match="there is no column `b`"):
        _answer(tmp_path, "SELECT b FROM (SELECT 1 AS a)")


@pytest.mark.parametrize(
    "dies",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",  # as the system does when memory runs out
        "raise MemoryError",
        "sys.stderr.write('terminate called after throwing an instance of std::bad_alloc'); sys.stderr.flush(); "
        "os.kill(os.getpid(), signal.SIGABRT)",
    ],
)
def test_a_process_that_dies_for_lack_of_memory_says_so(
    dies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess_query, "_CHILD", _script(tmp_path, dies))
    with pytest.raises(LimitExceeded, match=r"needs more than 256.0 MiB of memory"):
        _answer(tmp_path)


@pytest.mark.parametrize(
    ("dies", "how", "detail"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "by the signal SIGSEGV", None),
        ("os.kill(os.getpid(), signal.SIGTERM)", "by the signal SIGTERM", None),
        ("sys.exit(3)", "with exit code 3", None),
        ("import no_such_module", "with exit code 1", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_a_process_that_dies_otherwise_says_how(
    dies: str, how: str, detail: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess_query, "_CHILD", _script(tmp_path, dies))
    with pytest.raises(QueryError) as error:
        _answer(tmp_path)
    assert not isinstance(error.value, LimitExceeded)
    assert str(error.value.message) == f"the process of the query ended unexpectedly, {how}"
    assert error.value.detail == detail


def _script(folder: Path, dies: str) -> Path:
    path = folder / "child.py"
    path.write_text(f"import os, signal, sys\n{dies}\n", encoding="utf-8")
    return path
