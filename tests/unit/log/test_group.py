"""Group commit: many appends, few fsyncs; nobody waits for who is not there; too much waiting holds senders back."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.clock import SystemClock
from millstream.log import Log, group_commit
from millstream.log.storage.disk import RealDisk

NUMBERS = pa.schema({"n": pa.int64()})


class Gate(RealDisk):
    """A disk whose fsyncs of records wait while the gate is shut, and are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.open.set()
        self.waiting = threading.Event()
        self.fsyncs = 0

    def fsync(self, path: Path) -> None:
        if path.suffix == ".wal":
            self.fsyncs += 1
            self.waiting.set()
            assert self.open.wait(30)
        super().fsync(path)


@pytest.fixture
def disk() -> Gate:
    return Gate()


def test_appends_that_wait_together_share_one_fsync(tmp_path: Path, disk: Gate) -> None:
    topic = Log(tmp_path, SystemClock(), disk).create("t", NUMBERS)
    topic.append({"n": 0})
    disk.open.clear()
    disk.waiting.clear()
    first = topic.send({"n": 1})
    assert disk.waiting.wait(30)
    before = disk.fsyncs
    rest = [topic.send({"n": n}) for n in range(2, 1002)]
    disk.open.set()
    assert first.result(30).offsets == {0: (1, 2)}
    assert [r.result(30).offsets[0][0] for r in rest] == list(range(2, 1002))
    assert disk.fsyncs - before <= 2
    topic.close()


def test_many_threads_append_and_every_record_is_there_once(tmp_path: Path, disk: Gate) -> None:
    topic = Log(tmp_path, SystemClock(), disk).create("t", NUMBERS, partitions=2, segment_rows=50)

    def work(thread: int) -> list[tuple[int, int]]:
        places = []
        for i in range(50):
            ((partition, (first, _)),) = topic.append({"n": thread * 1000 + i}).offsets.items()
            places.append((partition, first))
        return places

    with ThreadPoolExecutor(8) as pool:
        places = [p for found in pool.map(work, range(8)) for p in found]
    assert len(set(places)) == 400
    there = [n for p, e in topic.end().items() for n in topic.read(p, 0, e)["n"].to_pylist()]
    assert sorted(there) == [t * 1000 + i for t in range(8) for i in range(50)]
    assert disk.fsyncs < 400, "some of them shared one"
    topic.close()
    assert topic.verify() == []


def test_a_lone_append_does_not_wait_for_the_linger(tmp_path: Path, disk: Gate) -> None:
    topic = Log(tmp_path, SystemClock(), disk).create("t", NUMBERS, linger=60.0)
    begin = time.monotonic()
    topic.append({"n": 0})
    topic.send({"n": 1}).result()
    assert time.monotonic() - begin < 30
    topic.close()


def test_the_linger_ends_when_as_many_are_there_as_last_time(tmp_path: Path, disk: Gate) -> None:
    topic = Log(tmp_path, SystemClock(), disk).create("t", NUMBERS, linger=60.0)
    topic.append({"n": 0})
    for _ in range(3):
        barrier = threading.Barrier(4)

        def work(n: int) -> None:
            barrier.wait(30)  # noqa: B023
            topic.append({"n": n})

        topic._group(0)._last = 4
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    assert topic.end() == {0: 13}
    topic.close()


def test_a_sender_is_held_back_while_too_much_waits(
    tmp_path: Path, disk: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "QUEUE_BYTES", 1000)
    topic = Log(tmp_path, SystemClock(), disk).create("t", NUMBERS)
    topic.append({"n": 0})
    disk.open.clear()
    disk.waiting.clear()
    topic.send({"n": 1})
    assert disk.waiting.wait(30)
    sent = threading.Semaphore(0)
    futures = []

    def work() -> None:
        for n in range(100):
            futures.append(topic.send({"n": n}))
            sent.release()

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(13):  # 13 rows of 80 bytes fill the queue
        assert sent.acquire(timeout=30)
    assert not sent.acquire(timeout=0.2)
    disk.open.set()
    thread.join(30)
    assert len(futures) == 100
    assert sorted(f.result(30).offsets[0][0] for f in futures) == list(range(2, 102))
    topic.close()
