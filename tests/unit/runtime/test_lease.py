"""Who owns a home: the heartbeat, the words about an owner, and taking over from one that died or froze."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

import millstream as ms
from millstream import processes
from millstream.errors import HomeDamaged, HomeInUse, LeaseLost
from millstream.home import Home
from millstream.plan.planner import plan
from millstream.runtime.recovery import repair
from millstream.runtime.supervision import lease
from millstream.runtime.supervision.lease import HomeLock, HomeOwner, fence, in_use, owner_of, wait_for
from tests.local import LocalEngine

HOLD = """
import sys, time
from pathlib import Path
from millstream.runtime.supervision.lease import HomeLock
lock = HomeLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def until_beat(path: Path, other_than: float) -> float:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        owner = owner_of(path)
        if owner is not None and owner.beat != other_than:
            return owner.beat
        time.sleep(0.01)  # another thread writes a file: there is nothing to wait on
    pytest.fail("no heartbeat")


def test_the_lock_file_names_its_owner_and_its_heart_beats(path: Path) -> None:
    lock = HomeLock(path, beat=0.01)
    owner = owner_of(path)
    assert owner is not None and (owner.pid, owner.host) == (os.getpid(), socket.gethostname())
    assert owner.started == processes.started(os.getpid()) is not None
    assert owner.is_here and owner.silence is not None and owner.silence < 30
    first = until_beat(path, 0.0)
    assert until_beat(path, first) > first
    lock.release()
    assert HomeLock(path).owner.token == owner.token + 1


def test_a_second_owner_is_told_who_has_the_home_since_when_and_that_it_is_alive(path: Path) -> None:
    lock = HomeLock(path)
    with pytest.raises(HomeInUse, match=rf"in use by process {os.getpid()} since 20.*Z \(alive\)") as caught:
        HomeLock(path)
    assert "ms.connect" in (caught.value.hint or "")
    lock.release()


def write(path: Path, owner: HomeOwner) -> None:
    path.write_bytes(orjson.dumps(owner))


def me(**other: object) -> HomeOwner:
    pid = os.getpid()
    mine = HomeOwner(pid, processes.started(pid), processes.boot(), socket.gethostname(), "2026-01-01T00:00:00Z", 1)
    return replace(mine, beat=time.monotonic(), **other)  # type: ignore[arg-type]


def test_a_silent_owner_is_called_frozen_and_the_hint_says_how_to_take_over(path: Path) -> None:
    write(path, replace(me(), beat=time.monotonic() - 42))
    said = in_use(path)
    assert "(frozen: last heard 42 seconds ago)" in said.message
    assert "--take-over" in (said.hint or "")


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"pid": 1, "colour": 2}'])
def test_a_lock_file_that_cannot_be_read_names_nobody(path: Path, text: str) -> None:
    path.write_text(text)
    assert owner_of(path) is None
    assert "process unknown" in in_use(path).message


def test_a_lock_file_with_nothing_but_a_process_id_is_understood(path: Path) -> None:
    path.write_text("4711")
    assert in_use(path).message.endswith("in use by process 4711")


def test_a_home_is_taken_when_its_owner_ends(path: Path) -> None:
    with holder(path) as other:
        taken: list[HomeLock | None] = []
        watching = threading.Event()
        thread = threading.Thread(target=lambda: taken.append(wait_for(path, meanwhile=watching.set)))
        thread.start()
        assert watching.wait(30) and not taken
        other.kill()
        thread.join(30)
    (lock,) = taken
    assert lock is not None and lock.owner.token == 2
    lock.release()


def test_waiting_can_be_given_up(path: Path) -> None:
    with holder(path) as other:
        assert wait_for(path, give_up=iter([False, False, True]).__next__) is None
        assert other.poll() is None


def test_an_owner_that_lives_is_left_alone(path: Path) -> None:
    with holder(path) as other:
        until = time.monotonic() + 2.5  # longer than the lease and the time it is watched for
        assert wait_for(path, lease=1.5, give_up=lambda: time.monotonic() > until) is None
        assert other.poll() is None


def test_a_frozen_owner_is_ended_and_the_home_taken(path: Path) -> None:
    with holder(path) as other:
        other.send_signal(signal.SIGSTOP)
        lock = wait_for(path, lease=0.3)
        assert other.wait(30) == -signal.SIGKILL
        assert lock is not None and lock.owner.pid == os.getpid()
        lock.release()


def test_a_process_that_has_the_number_of_the_owner_but_began_at_another_time_is_left_alone(path: Path) -> None:
    with holder(path) as other:
        owner = owner_of(path)
        assert owner is not None and owner.started is not None
        with pytest.raises(HomeInUse, match="cannot be seen or ended from here"):
            fence(path, replace(owner, started=owner.started - 1))
        assert other.poll() is None


@pytest.mark.parametrize("other", [{"host": "elsewhere"}, {"boot": "another"}, {"started": None}])
def test_an_owner_elsewhere_is_not_ended(path: Path, other: dict[str, object]) -> None:
    with holder(path) as process:
        owner = owner_of(path)
        assert owner is not None
        with pytest.raises(HomeInUse, match="only a process of the same host") as caught:
            fence(path, replace(owner, **other))  # type: ignore[arg-type]
        assert process.poll() is None and "end it there" in (caught.value.hint or "")


def test_an_owner_that_may_not_be_ended_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pid: int, since: int, wait: float) -> bool:
        raise PermissionError

    with holder(path) as process:
        owner = owner_of(path)
        assert owner is not None
        monkeypatch.setattr(lease.processes, "end", refused)
        with pytest.raises(HomeInUse, match="belongs to another user") as caught:
            fence(path, owner)
        assert f"kill -9 {process.pid}" in (caught.value.hint or "")


def test_nobody_ends_itself(path: Path) -> None:
    lock = HomeLock(path)
    with pytest.raises(HomeInUse):
        fence(path, lock.owner)
    lock.release()


def test_only_the_process_that_is_meant_is_ended() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        began = processes.started(process.pid)
        assert began is not None
        assert process.pid in processes.children(os.getpid())
        assert processes.name(process.pid) == "sleep"
        assert not processes.end(process.pid, began + 1, 5)
        assert process.poll() is None
        assert processes.end(process.pid, began, 30)
        assert process.wait(30) == -signal.SIGKILL
        assert not processes.end(process.pid, began, 5)


def test_a_loop_with_an_older_token_commits_nothing(tmp_path: Path) -> None:
    flow, memory = ms.Flow("f"), ms.memory()
    rows = flow.source("rows", memory, schema="n BIGINT, ts TIMESTAMP", event_time="ts")
    rows.aggregate(n=ms.count()).view("total")
    with Home(tmp_path) as home:
        old = home.loop(plan(flow), engine=LocalEngine)
        memory.send({"n": 1, "ts": 1767225600})
        new = home.loop(plan(flow), engine=LocalEngine)
        with pytest.raises(LeaseLost):
            old.step()
        assert home.query("SELECT n FROM total").to_dicts() == []
        assert new.step() is not None
        assert home.query("SELECT n FROM total").to_dicts() == [{"n": 1}]
        old.close()
        new.close()


@pytest.mark.parametrize("copied", [False, True], ids=["moved", "replaced by a copy"])
def test_the_owner_of_a_home_that_was_moved_writes_nothing_to_its_old_path(tmp_path: Path, copied: bool) -> None:
    path, moved = tmp_path / "home", tmp_path / "moved"
    flow = ms.Flow("counting")
    bids = flow.source("bids", ms.log("bids"), schema="auction BIGINT")
    bids.key_by("auction").aggregate(n=ms.count()).view("totals")
    with Home(path) as home:
        home.open_home.on_store_open = lambda: None
        topic = home.topic("bids", schema="auction BIGINT")
        topic.append(pa.table({"auction": [1, 2]}))
        session = home.session(start=False)
        loop = home.loop(plan(flow), engine=LocalEngine)
        assert loop.step() is not None
        topic.append(pa.table({"auction": [3]}))
        path.rename(moved)
        if copied:
            shutil.copytree(moved, path)
        before = _files(path)
        for write in (
            loop.step,
            lambda: home.put_table("t", pa.table({"i": [1]})),
            lambda: home.checkpoint("one"),
            lambda: list(session.execute("CREATE TABLE items (id BIGINT)")),
        ):
            with pytest.raises(LeaseLost, match="was moved or replaced while this process used it"):
                write()
        assert _files(path) == before
        loop.abandon()
    with Home(moved) as home:
        loop = home.loop(plan(flow), engine=LocalEngine)
        assert loop.step() is not None
        loop.close()
        assert home.query("SELECT count(*) AS n FROM totals").to_dicts() == [{"n": 3}]


def _files(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_a_read_only_disk_is_named_without_sending_anybody_to_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Home(tmp_path / "home"):
        pass

    def refuses(path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(lease, "_locked", refuses)
    for opening in (lambda: Home(tmp_path / "home"), lambda: repair.locked(tmp_path / "home")):
        with pytest.raises(HomeDamaged, match="is mounted read-only") as error:
            opening()
        assert "repair" not in str(error.value)
