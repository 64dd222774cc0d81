"""What a standby does beside the owner of a home: it reads, and writes nothing but its own folder."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import millstream as ms
from millstream.connect.files.source import FileSource, FollowedFiles
from millstream.connect.port import SourceSlice
from millstream.engine.spark_engines import SparkEngines
from millstream.errors import DefinitionError
from millstream.home import Home
from millstream.model.connectors import Files
from millstream.model.types.schema import Schema
from millstream.plan.planner import plan
from millstream.runtime.supervision.lease import HomeLock
from millstream.runtime.supervision.standby import Standby
from tests.local import LocalEngine

SCHEMA = Schema.parse("n BIGINT")
ENGINES = SparkEngines(Path("unused.log"))


def flow_over(source: object) -> ms.Flow:
    flow = ms.Flow("f")
    rows = flow.source("rows", source, schema="n BIGINT, ts TIMESTAMP", event_time="ts")  # type: ignore[arg-type]
    rows.aggregate(n=ms.count()).view("total")
    return flow


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_files_are_followed_as_the_owner_discovers_them_and_nothing_is_written(tmp_path: Path) -> None:
    folder, ledger = tmp_path / "in", tmp_path / "home" / "rows.jsonl"
    folder.mkdir()
    (folder / "a.json").write_text('{"n": 1}\n')
    connector = Files(str(folder), "json")
    followed = FollowedFiles(connector, ledger)
    assert followed.head(0) == {0: 0} and not ledger.exists()
    owner = FileSource(connector, SCHEMA, ledger)
    owner.head(0)
    assert followed.head(0) == {0: 1}
    (folder / "b.json").write_text('{"n": 2}\n')
    before = content(tmp_path)
    assert followed.head(0) == {0: 1}  # the owner has not seen it yet
    assert content(tmp_path) == before
    owner.head(0)
    assert followed.head(0) == {0: 2}
    part = SourceSlice({0: (0, 2)})
    assert followed.entries == owner.entries and followed.slice(part) == owner.slice(part)


def test_a_line_of_the_ledger_that_is_not_whole_is_left_for_later(tmp_path: Path) -> None:
    ledger = tmp_path / "rows.jsonl"
    line = b'{"n":0,"path":"/a.json","size":1,"mtime":2}\n'
    followed = FollowedFiles(Files(str(tmp_path), "json"), ledger)
    ledger.write_bytes(line + line[:10])
    assert followed.head(0) == {0: 1}
    assert ledger.read_bytes() == line + line[:10]
    ledger.write_bytes(line + line.replace(b"/a", b"/b").replace(b'"n":0', b'"n":1'))
    assert followed.head(0) == {0: 2} and followed.entries[1].path == "/b.json"


def test_a_home_that_nobody_owns_is_taken_at_once_and_waiting_tells_since_when_it_stands_still(tmp_path: Path) -> None:
    memory = ms.memory()
    planned = plan(flow_over(memory))
    with Home(tmp_path) as home:
        loop = home.loop(planned, engine=LocalEngine)
        memory.send({"n": 1, "ts": 1767225600})
        assert loop.step() is not None
        loop.close()
    closed = (tmp_path / "flows/f/epochs/000000000001.json").stat().st_mtime
    taken = Standby(tmp_path, [planned], engines=ENGINES).wait()
    assert taken is not None and taken.before is None
    assert taken.closed == {"f": closed}
    with Home(tmp_path, lock=taken.lock) as home:
        assert home.query("SELECT n FROM total").to_dicts() == [{"n": 1}]


def test_a_standby_takes_a_home_over_and_says_from_whom(tmp_path: Path) -> None:
    with Home(tmp_path):
        pass
    lock = HomeLock(tmp_path / "lock")
    looked = threading.Event()

    def give_up() -> bool:
        if looked.is_set():
            lock.release()
        looked.set()
        return False

    taken = Standby(tmp_path, [], engines=ENGINES).wait(give_up)
    assert taken is not None and taken.before is not None
    assert taken.before.pid == os.getpid()
    taken.lock.release()


def test_waiting_is_given_up_when_asked(tmp_path: Path) -> None:
    with Home(tmp_path):
        assert Standby(tmp_path, [], engines=ENGINES).wait(lambda: True) is None


def test_folders_of_standbys_that_were_killed_are_removed_by_the_next_one(tmp_path: Path) -> None:
    with Home(tmp_path):
        pass
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for pid in (ended.pid, os.getppid()):
        (tmp_path / "shadow" / str(pid)).mkdir(parents=True)
    Standby(tmp_path, [], engines=ENGINES).warm()
    assert [p.name for p in (tmp_path / "shadow").iterdir()] == [str(os.getppid())]


def test_a_home_that_is_not_there_yet_is_not_touched_before_it_is_owned(tmp_path: Path) -> None:
    waiting = Standby(tmp_path / "home", [], engines=ENGINES)
    waiting.warm()
    assert not (tmp_path / "home").exists()
    taken = waiting.wait()
    assert taken is not None
    with Home(tmp_path / "home", lock=taken.lock) as home:
        assert home.flows() == []


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="unknown kind of standby"):
        Standby(tmp_path, [], "lazy", engines=ENGINES)
