"""A log on a disk that is mounted read-only: reading works, and what writes is refused with the place."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.clock import ManualClock
from millstream.errors import LogFailed
from millstream.log.log import Log
from millstream.log.storage.disk import Lock, RealDisk

SCHEMA = pa.schema([("a", pa.int64())])


class ReadOnly(RealDisk):
    """A disk on which nothing can be locked, as on a read-only mount."""

    def lock(self, path: Path, *, wait: bool = False) -> Lock:
        raise OSError(errno.EROFS, "Read-only file system", str(path))


@pytest.mark.parametrize(
    "write",
    [
        lambda log: log.topic("t").append({"a": 2}),
        lambda log: log.create("u", SCHEMA),
        lambda log: log.drop("t"),
        lambda log: log.topic("t").trim({0: 1}),
        lambda log: log.topic("t").hold("reader", {0: 0}),
    ],
    ids=["append", "create", "drop", "trim", "hold"],
)
def test_what_writes_is_refused_by_name(tmp_path: Path, write: Callable[[Log], object]) -> None:
    log = Log(tmp_path / "log", ManualClock(0))
    log.create("t", SCHEMA).append({"a": 1})
    log.close()
    log = Log(tmp_path / "log", ManualClock(0), ReadOnly())
    with pytest.raises(LogFailed, match="is mounted read-only"):
        write(log)
    assert log.topic("t").read(0, 0, 1)["a"].to_pylist() == [1]
    assert log.topic("t").verify() == []
    log.close()


def test_a_check_on_a_read_only_disk_finds_what_a_writer_would(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", ManualClock(0))
    topic = log.create("t", SCHEMA)
    topic.append({"a": 1})
    durable = tmp_path / "log" / "t" / "p00000" / "durable"
    older = durable.read_bytes()
    topic.append({"a": 2})
    log.close()
    durable.write_bytes(older)
    log = Log(tmp_path / "log", ManualClock(0), ReadOnly())
    (found,) = log.topic("t").verify()
    assert "durable is damaged" in found.message
    log.close()
