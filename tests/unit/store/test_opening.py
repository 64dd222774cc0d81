"""The file of the store: it appears whole or not at all, and its owner waits for readers."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from millstream.errors import HomeInUse
from millstream.store import open
from millstream.store.duckdb import DuckStore

READING = """
import sys
from pathlib import Path
from millstream.store.duckdb import DuckStore
store = DuckStore(Path(sys.argv[1]), read_only=True)
print("reading", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that reads the store until its input ends."""
    DuckStore(tmp_path / "store.duckdb").close()
    process = subprocess.Popen(
        [sys.executable, "-c", READING, str(tmp_path / "store.duckdb")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    yield process
    process.communicate()


def test_a_start_that_died_while_making_the_store_leaves_nothing_that_matters(tmp_path: Path) -> None:
    (tmp_path / ".store.duckdb.new").write_bytes(b"\0" * 5000)
    (tmp_path / ".store.duckdb.new.wal").write_bytes(b"half a statement")
    store = DuckStore(tmp_path / "store.duckdb")
    assert store.take_lease("f", "me") == 1
    store.close()
    assert [p.name for p in tmp_path.iterdir()] == ["store.duckdb"]
    again = DuckStore(tmp_path / "store.duckdb")
    assert again.take_lease("f", "me") == 2
    again.close()


def test_the_owner_waits_for_a_reader_to_end(
    tmp_path: Path, reader: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()

    def seen(seconds: float) -> None:
        waits.set()
        time.sleep(seconds)

    monkeypatch.setattr(open, "sleep", seen)
    tokens: list[int] = []

    def own() -> None:
        store = DuckStore(tmp_path / "store.duckdb")
        tokens.append(store.take_lease("f", "me"))
        store.close()

    owner = threading.Thread(target=own)
    owner.start()
    assert waits.wait(60)
    reader.communicate()
    owner.join()
    assert tokens == [1]


def test_a_reader_that_does_not_end_is_named(
    tmp_path: Path, reader: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open, "PAUSES", 1)
    with pytest.raises(HomeInUse, match="open in another process") as caught:
        DuckStore(tmp_path / "store.duckdb")
    assert caught.value.detail is not None
    assert str(reader.pid) in caught.value.detail
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    "said",
    [
        "IO Error: Could not set lock on file",
        "Connection Error: Can't open a connection to same database file with a different configuration than existing",
        "Resource In Use Error: Unique file handle conflict: the database file is already attached by database",
    ],
)
def test_a_reader_that_holds_the_file_for_a_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    path = tmp_path / "store.duckdb"
    DuckStore(path).close()
    connect, left = duckdb.connect, [duckdb.Error(said)] * 2

    def held(*given: Any, **options: Any) -> Any:
        if left:
            raise left.pop()
        return connect(*given, **options)

    monkeypatch.setattr(open, "PAUSE", 0)
    monkeypatch.setattr(duckdb, "connect", held)
    store = DuckStore(path)
    assert store.tables() == {} and not left
    store.close()
