"""The conformance suite of storages: tests that every storage of state must pass.

class TestMine(StorageConformance):
    def storage(self, folder):
        return MyStorage(...)
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from millstream.errors import HomeDamaged
from millstream.state.run import StateRun
from millstream.state.shard import RunCache, StateReader
from millstream.state.storage import Storage

LARGE = bytes(range(256)) * 80_000
"""Larger than one part of a multipart upload, and than one read."""


class StorageConformance:
    """Subclass it, and override `storage`."""

    def storage(self, folder: Path) -> Storage:
        """An empty storage; the same one for the same folder."""
        raise NotImplementedError

    # ------------------------------------------------------------ files

    @pytest.mark.parametrize("content", [b"", b"x", LARGE], ids=["empty", "small", "large"])
    def test_a_file_is_read_as_it_was_written(self, tmp_path: Path, content: bytes) -> None:
        """By another process, too."""
        self.storage(tmp_path).put("a/b/1.arrow", content)
        there = self.storage(tmp_path)
        assert there.map("a/b/1.arrow").to_pybytes() == content
        assert there.sizes(["a/b/1.arrow"]) == {"a/b/1.arrow": len(content)}
        assert there.names() == {"a/b/1.arrow"}

    def test_a_file_that_is_put_again_is_replaced_whole(self, tmp_path: Path) -> None:
        """A shorter content leaves nothing of the longer one. A mapping keeps what it had."""
        storage = self.storage(tmp_path)
        storage.put("1", b"longer")
        before = storage.map("1")
        storage.put("1", b"new")
        assert before.to_pybytes() == b"longer" and self.storage(tmp_path).map("1").to_pybytes() == b"new"

    def test_a_new_file_appears_only_when_it_is_finished(self, tmp_path: Path) -> None:
        """Under its name; a storage may list its temporary name."""
        storage = self.storage(tmp_path)
        file = storage.create("a/1")
        file.write(b"one")
        assert storage.sizes(["a/1"]) == {} and "a/1" not in storage.names()
        with pytest.raises(FileNotFoundError):
            storage.map("a/1")
        file.write(b"two")
        content = file.finish()
        assert content is None or content.to_pybytes() == b"onetwo"
        assert storage.map("a/1").to_pybytes() == b"onetwo" and storage.names() == {"a/1"}

    def test_a_discarded_file_leaves_nothing(self, tmp_path: Path) -> None:
        """Neither under its name nor under another."""
        storage = self.storage(tmp_path)
        file = storage.create("a/1")
        file.write(b"one")
        file.discard()
        assert storage.names() == set() and storage.sizes(["a/1"]) == {}

    def test_a_missing_file_is_not_found(self, tmp_path: Path) -> None:
        """Also where its folder is missing; deleting it is fine."""
        storage = self.storage(tmp_path)
        assert storage.names() == set()
        with pytest.raises(FileNotFoundError):
            storage.map("a/1")
        storage.delete(["a/1"])
        storage.put("a/2", b"x")
        assert storage.sizes(["a/1", "a/2", "b/1"]) == {"a/2": 1}

    def test_a_deleted_file_is_gone_and_its_mapping_stays(self, tmp_path: Path) -> None:
        """A reader may outlive the file that it reads."""
        storage = self.storage(tmp_path)
        for name in ("a/1", "a/2", "b/1"):
            storage.put(name, LARGE)
        mapped = storage.map("a/1")
        storage.delete(["a/1", "b/1"])
        assert mapped.to_pybytes() == LARGE
        assert storage.names() == {"a/2"} and storage.sizes(["a/1", "a/2"]) == {"a/2": len(LARGE)}

    def test_folders_do_not_see_each_other(self, tmp_path: Path) -> None:
        """Also where the name of one begins with that of another."""
        storage = self.storage(tmp_path)
        one, longer = storage.within("one"), storage.within("one-more")
        one.put("1", b"x")
        longer.put("2", b"y")
        assert one.names() == {"1"} and longer.names() == {"2"}
        assert storage.names() == {"one/1", "one-more/2"}
        assert one.place("1").endswith("/one/1") and one.place("1").startswith(storage.place())

    def test_it_travels_to_tasks(self, tmp_path: Path) -> None:
        """As a value: equal storages are one key of a cache."""
        storage = self.storage(tmp_path).within("v")
        storage.put("1", b"x")
        there = pickle.loads(pickle.dumps(storage))
        assert there == storage and hash(there) == hash(storage) and there.map("1").to_pybytes() == b"x"

    # ------------------------------------------------------------ runs

    def test_runs_are_written_read_and_verified(self, tmp_path: Path) -> None:
        """By the process that wrote them, and by another."""
        rows = pl.DataFrame({"$h": np.arange(1000), "n": np.arange(1000)})
        for cache in (RunCache(self.storage(tmp_path)), RunCache(self.storage(tmp_path), verify=False)):
            run = cache.write("v/1.arrow", rows, np.full(1000, 10))
            for reader in (cache, RunCache(self.storage(tmp_path))):
                assert len(_scan(reader, run)) == 1000

    def test_a_missing_or_damaged_run_is_named(self, tmp_path: Path) -> None:
        """With its place."""
        storage = self.storage(tmp_path)
        run = RunCache(storage).write("v/1.arrow", pl.DataFrame({"$h": [1], "n": [1]}), np.array([10]))
        whole = storage.map("v/1.arrow").to_pybytes()
        for damaged in (whole[:-1], whole + b"\0", whole[:8] + b"\x40" + whole[9:], b""):
            storage.put("v/1.arrow", damaged)
            with pytest.raises(HomeDamaged, match=r"v/1\.arrow does not match its checksum"):
                _scan(RunCache(storage), run)
        storage.delete(["v/1.arrow"])
        with pytest.raises(HomeDamaged, match=r"v/1\.arrow is missing"):
            _scan(RunCache(storage), run)


def _scan(cache: RunCache, run: StateRun) -> pl.DataFrame:
    found = StateReader(cache, [run], ["$h"]).scan(0)
    assert found is not None
    return found
