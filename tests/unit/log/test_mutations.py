"""The fences are needed: with any one of them off, the crash suite finds a broken promise."""

from __future__ import annotations

import zlib
from itertools import product

import pytest

from millstream.log.storage import frame

from .crashing import Crashes
from .disk import SimDisk
from .world import OPERATIONS, Violation, World


def crash_everywhere(*, syncs: bool = True, dir_syncs: bool = True) -> None:
    crashes = Crashes(inner=False)
    for length in (1, 2):
        for names in product(OPERATIONS, repeat=length):
            crashes.after(names, disk_with(syncs=syncs, dir_syncs=dir_syncs))


def disk_with(*, syncs: bool, dir_syncs: bool) -> SimDisk:
    disk = World().disk
    disk.syncs, disk.dir_syncs = syncs, dir_syncs
    return disk


def test_without_fsync_a_promise_is_broken() -> None:
    with pytest.raises(Violation, match="after "):
        crash_everywhere(syncs=False)


def test_without_directory_fsync_a_promise_is_broken() -> None:
    with pytest.raises(Violation, match="after "):
        crash_everywhere(dir_syncs=False)


def test_without_checksums_a_promise_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoChecksum:
        @staticmethod
        def crc32(data: object, value: int = 0) -> int:
            del data, value
            return 0

    assert zlib.crc32(b"x") != NoChecksum.crc32(b"x")
    monkeypatch.setattr(frame, "zlib", NoChecksum)
    with pytest.raises(Violation, match="after "):
        crash_everywhere()
