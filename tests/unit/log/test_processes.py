"""Two processes on one log: one writer, and readers that see what is durable and nothing else."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.clock import ManualClock, SystemClock
from millstream.errors import DiskFull, LogFailed, LogInUse
from millstream.log import Log
from millstream.log.reader import Layout
from millstream.log.storage.disk import RealDisk
from millstream.log.storage.files import folder_of, wal_name

NUMBERS = pa.schema({"n": pa.int64()})

WRITER = """
import sys
from pathlib import Path
from millstream.clock import SystemClock
from millstream.log import Log
topic = Log(Path(sys.argv[1]), SystemClock()).topic("t")
for line in sys.stdin:
    topic.append([{"n": int(n)} for n in line.split()])
    print(topic.end()[0], flush=True)
"""


class Writer:
    """A process that appends the numbers it is told."""

    def __init__(self, root: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def append(self, *numbers: int) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(map(str, numbers)) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self, *, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    log = Log(tmp_path / "log", SystemClock())
    log.create("t", NUMBERS)
    log.close()
    return tmp_path / "log"


@pytest.fixture
def writer(root: Path) -> Iterator[Writer]:
    started = Writer(root)
    yield started
    started.end(kill=True)


def test_the_second_writer_is_refused_and_told_who_has_it(root: Path, writer: Writer) -> None:
    writer.append(1)
    topic = Log(root, SystemClock()).topic("t")
    with pytest.raises(LogInUse) as told:
        topic.append({"n": 2})
    assert str(writer.process.pid) in str(told.value)
    assert topic.read(0, 0, 1)["n"].to_pylist() == [1]


def test_a_killed_writer_leaves_its_lock_and_all_it_acknowledged(root: Path, writer: Writer) -> None:
    writer.append(1, 2)
    writer.end(kill=True)
    topic = Log(root, SystemClock()).topic("t")
    assert topic.append({"n": 3}).offsets == {0: (2, 3)}
    assert topic.read(0, 0, 3)["n"].to_pylist() == [1, 2, 3]
    topic.close()


def test_a_reader_sees_what_another_process_made_durable(root: Path, writer: Writer) -> None:
    topic = Log(root, SystemClock()).topic("t")
    assert topic.end() == {0: 0}
    for n in range(5):
        assert writer.append(n) == n + 1
        assert topic.end() == {0: n + 1}
        assert topic.read(0, 0, n + 1)["n"].to_pylist() == list(range(n + 1))


class Watched(RealDisk):
    """A disk that lets a test look, or fail, at the moment of an fsync or a write."""

    def __init__(self) -> None:
        super().__init__()
        self.at_fsync: list[object] = []
        self.fail_fsync = False
        self.space: int | None = None

    def fsync(self, path: Path) -> None:
        if path.suffix == ".wal":
            for look in self.at_fsync:
                look()  # type: ignore[operator]
            if self.fail_fsync:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fsync(path)

    def append(self, path: Path, data: bytes | memoryview) -> None:
        if self.space is not None and len(data) > self.space:
            super().append(path, bytes(data)[: self.space])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().append(path, data)


ASKER = """
import sys
from pathlib import Path
from millstream.clock import SystemClock
from millstream.log import Log
print(Log(Path(sys.argv[1]), SystemClock()).topic("t").end()[0])
"""


def test_what_is_written_but_not_yet_synced_is_not_seen_by_another_process(root: Path) -> None:
    disk = Watched()
    topic = Log(root, SystemClock(), disk).topic("t")
    topic.append({"n": 1})
    seen: list[int] = []

    def look() -> None:
        wal = folder_of(root / "t", 0) / wal_name(0)
        assert wal.stat().st_size > size, "the frame is in the file"
        asked = subprocess.run([sys.executable, "-c", ASKER, str(root)], capture_output=True, text=True, check=True)
        seen.append(int(asked.stdout))

    size = (folder_of(root / "t", 0) / wal_name(0)).stat().st_size
    disk.at_fsync.append(look)
    topic.append({"n": 2})
    disk.at_fsync.clear()
    assert seen == [1]
    assert topic.end() == {0: 2}
    topic.close()


def test_a_failed_fsync_ends_the_writer_until_it_is_opened_anew(root: Path) -> None:
    disk = Watched()
    log = Log(root, SystemClock(), disk)
    topic = log.topic("t")
    topic.append({"n": 1})
    disk.fail_fsync = True
    with pytest.raises(LogFailed, match="an fsync failed"):
        topic.append({"n": 2})
    disk.fail_fsync = False
    with pytest.raises(LogFailed, match="an fsync failed"):
        topic.append({"n": 3})
    with pytest.raises(LogFailed):
        topic.send({"n": 3}).result()
    assert topic.read(0, 0, topic.end()[0])["n"].to_pylist() == [1]
    topic.close()
    again = log.topic("t")
    assert again.append({"n": 4}).offsets == {0: (2, 3)}
    assert again.read(0, 0, 3)["n"].to_pylist() == [1, 2, 4], "what was not refused for good may be there"
    log.close()


def test_a_full_disk_harms_nothing_and_is_over_when_there_is_space(root: Path) -> None:
    disk = Watched()
    topic = Log(root, SystemClock(), disk).topic("t")
    topic.append({"n": 1})
    size = (folder_of(root / "t", 0) / wal_name(0)).stat().st_size
    disk.space = 100
    for _ in range(2):
        with pytest.raises(DiskFull, match="no space is left"):
            topic.append([{"n": i} for i in range(100)])
        assert (folder_of(root / "t", 0) / wal_name(0)).stat().st_size == size
    disk.space = None
    assert topic.append({"n": 2}).offsets == {0: (1, 2)}
    topic.close()


def test_a_reader_lives_through_rolls_and_trims_of_another_process(root: Path) -> None:
    """The files it has listed are gone when it opens them: it looks again."""
    writing = Log(root, ManualClock())
    topic = writing.topic("t")
    reading = Log(root, ManualClock()).topic("t")
    for n in range(4):
        topic.append({"n": n})
    listed = reading._readers[0].layout()
    topic.roll()
    topic.close()  # waits until it is sealed
    taken = iter([listed])
    whole = reading._readers[0].layout

    def stale_first() -> Layout:
        return next(taken, None) or whole()

    reading._readers[0].layout = stale_first  # type: ignore[method-assign]
    assert reading.read(0, 0, 4)["n"].to_pylist() == [0, 1, 2, 3]
    assert next(taken, None) is None, "the stale listing was used"
