"""Topics that are made and dropped while others look: one at a time, also from several processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.clock import ManualClock
from millstream.errors import LogInUse, UnknownName
from millstream.log import Log
from millstream.log.log import LOCK
from millstream.log.storage.disk import LOCKED_OUT, RealDisk

from .conftest import BIDS


class Watched(RealDisk):
    """A disk that tells whether another process could make or drop a topic while files go."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.free: list[str] = []
        self.gone = 0

    def unlink(self, path: Path) -> None:
        self.gone += 1
        try:
            RealDisk().lock(self.root / LOCK).release()
        except LOCKED_OUT:
            pass
        else:
            self.free.append(path.name)
        super().unlink(path)


def test_nobody_makes_a_topic_while_one_is_dropped(tmp_path: Path) -> None:
    disk = Watched(tmp_path)
    log = Log(tmp_path, ManualClock(), disk)
    log.create("bids", BIDS).append({"auction": 1})
    log.topic("bids").close()
    disk.gone, disk.free = 0, []
    log.drop("bids")
    assert disk.gone > 2
    assert disk.free == []
    log.create("bids", BIDS)
    assert log.topic("bids").end() == {0: 0}


def test_a_topic_can_be_called_lock(log: Log) -> None:
    log.create("lock", BIDS).append({"auction": 1})
    assert log.topics() == ["lock"]
    log.drop("lock")
    with pytest.raises(UnknownName, match="there is no topic `lock`"):
        log.drop("lock")


def test_a_drop_that_is_refused_leaves_the_topic_as_it_was(tmp_path: Path, log: Log) -> None:
    log.create("bids", BIDS).append({"auction": 1})
    other = Log(tmp_path / "log", ManualClock())
    with pytest.raises(LogInUse, match="another process writes to bids"):
        other.drop("bids")
    log.topic("bids").append({"auction": 2})
    assert other.topic("bids").end() == {0: 2}
    other.close()


@pytest.mark.parametrize("name", ["nothing", "../log", "", LOCK])
def test_a_drop_of_what_is_no_topic_says_so(log: Log, name: str) -> None:
    log.create("bids", BIDS)
    with pytest.raises(UnknownName, match="there is no topic"):
        log.drop(name)
    assert log.topics() == ["bids"]
