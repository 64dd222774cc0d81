"""Questions in a process of their own, when the process that asks is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson

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
