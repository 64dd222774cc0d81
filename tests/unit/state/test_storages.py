"""Both storages keep the contract; what is special about objects: copies, retries, refusals, lagging lists, secrets."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from millstream.errors import HomeDamaged, StorageFailed
from millstream.state import object_storage
from millstream.state.local_copies import COPIES, LocalCopies
from millstream.state.local_storage import LocalStorage
from millstream.state.object_storage import ObjectStorage, S3Options
from millstream.state.shard import RunCache, StateReader
from millstream.testing.conformance.storages import StorageConformance
from tests.object_storage import BUCKET, storage_at


class TestLocalStorage(StorageConformance):
    def storage(self, folder: Path) -> LocalStorage:
        return LocalStorage(folder / "files")


class TestSharedFolder(StorageConformance):
    def storage(self, folder: Path) -> LocalStorage:
        (folder / "shared").mkdir(exist_ok=True)
        return LocalStorage(folder / "shared", shared=True)


class TestObjectStorage(StorageConformance):
    endpoint = ""

    @pytest.fixture(autouse=True)
    def _emulated(self, s3_endpoint: str) -> None:
        self.endpoint = s3_endpoint

    def storage(self, folder: Path) -> ObjectStorage:
        return storage_at(self.endpoint, hashlib.md5(str(folder).encode()).hexdigest())


class TestObjectServer(StorageConformance):
    """What other tests use in place of the emulator keeps the same contract."""

    endpoint = ""

    @pytest.fixture(autouse=True)
    def _served(self, objects_endpoint: str) -> None:
        self.endpoint = objects_endpoint

    def storage(self, folder: Path) -> ObjectStorage:
        return storage_at(self.endpoint, hashlib.md5(str(folder).encode()).hexdigest())


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between requests, which are not waited for."""
    taken: list[float] = []
    monkeypatch.setattr(object_storage.time, "sleep", taken.append)
    return taken


def test_folders_and_files_of_a_shared_storage_have_the_permissions_of_its_root(tmp_path: Path) -> None:
    root = tmp_path / "shared"
    root.mkdir()
    root.chmod(0o2775)
    storage = LocalStorage(root, shared=True).within("id/flows/f/state")
    storage.put("v/1.arrow", b"x")
    folders = [p for p in root.rglob("*") if p.is_dir()]
    assert len(folders) == 5 and {p.stat().st_mode & 0o7777 for p in folders} == {0o2775}
    assert (storage.root / "v" / "1.arrow").stat().st_mode & 0o7777 == 0o664


def test_an_endpoint_that_does_not_answer_is_tried_again_and_then_named(pauses: list[float]) -> None:
    nobody = ObjectStorage(f"{BUCKET}/x", S3Options("http://127.0.0.1:9", "us-east-1", "me", "very-secret"))
    for request in (
        lambda: nobody.put("v/1.arrow", b"x"),
        lambda: nobody.map("v/1.arrow"),
        lambda: nobody.sizes(["v/1.arrow"]),
        nobody.names,
        lambda: nobody.delete(["v/1.arrow"]),
    ):
        with pytest.raises(StorageFailed, match=r"s3://states/x.* at http://127\.0\.0\.1:9 does not answer") as caught:
            request()
        assert pauses == list(object_storage.BACK_OFF)
        assert "very-secret" not in str(caught.value) and caught.value.hint
        pauses.clear()


def test_a_request_that_fails_once_is_repeated(
    s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    storage = storage_at(s3_endpoint, "flaky")
    client, failures = object_storage._file_system, iter([True, False, True, True, False])

    def flaky(options: S3Options) -> Any:
        if next(failures):
            raise OSError("AWS Error NETWORK_CONNECTION")
        return client(options)

    monkeypatch.setattr(object_storage, "_file_system", flaky)
    storage.put("1", b"x")
    assert storage.map("1").to_pybytes() == b"x"
    assert pauses == [object_storage.BACK_OFF[0], *object_storage.BACK_OFF[:2]]


def test_a_refused_request_is_not_repeated(s3_endpoint: str, pauses: list[float]) -> None:
    storage = ObjectStorage("no-such-bucket/x", storage_at(s3_endpoint, "x").options)
    with pytest.raises(StorageFailed, match="refuses the request") as caught:
        storage.put("1", b"x")
    assert pauses == [] and caught.value.hint is not None and "bucket" in caught.value.hint


def test_a_small_file_is_one_request(s3_endpoint: str, caplog: pytest.LogCaptureFixture) -> None:
    storage = storage_at(s3_endpoint, "requests")
    storage.put("v/0.arrow", b"x")  # the client is made
    with caplog.at_level(logging.INFO, logger="werkzeug"):
        storage.put("v/1.arrow", b"x" * 100_000)
    requests = [r.getMessage() for r in caplog.records if "/requests/" in r.getMessage()]
    assert len(requests) == 1 and "PUT /states/requests/v/1.arrow" in requests[0]


def test_many_objects_are_looked_up_and_deleted_at_once(s3_endpoint: str) -> None:
    storage = storage_at(s3_endpoint, "many")
    names = [f"v/{n}" for n in range(40)]
    for name in names[::2]:
        storage.put(name, name.encode())
    assert storage.sizes(names) == {n: len(n) for n in names[::2]}
    storage.delete(names)
    assert storage.names() == set() and storage.sizes(names) == {}


def test_secrets_are_never_shown() -> None:
    storage = ObjectStorage("b/p", S3Options("", "", "the-key", "the-secret", "the-token")).within("x")
    for text in (repr(storage), repr(storage.options), storage.place("1"), str(storage)):
        assert not any(word in text for word in ("the-key", "the-secret", "the-token"))


# ---------------------------------------------------------------- copies


def test_the_copies_of_a_process_are_bounded_and_the_oldest_goes_first() -> None:
    copies, dropped = LocalCopies(), list[str]()
    for key in "abc":
        copies.add(key, 4, lambda k=key: dropped.append(k), 10)
    assert dropped == ["a"] and copies.bytes == 8
    copies.use("b")
    copies.add("d", 4, lambda: dropped.append("d"), 10)
    assert dropped == ["a", "c"] and copies.bytes == 8
    copies.add("e", 40, lambda: dropped.append("e"), 10)  # alone too large: it stays as long as nothing else comes
    assert dropped == ["a", "c", "b", "d"] and copies.bytes == 40
    copies.release("e")
    copies.release("e")
    assert copies.bytes == 0


class Counted(ObjectStorage):
    """Counts what is fetched."""

    fetched: list[str] = []  # noqa: RUF012 - one list for all

    def map(self, name: str) -> pa.Buffer:
        self.fetched.append(name)
        return super().map(name)


def test_runs_are_fetched_once_while_they_fit_and_again_when_they_were_dropped(s3_endpoint: str) -> None:
    plain = storage_at(s3_endpoint, "bounded")
    rows = pl.DataFrame({"$h": np.arange(5000), "n": np.arange(5000)})
    runs = [RunCache(plain).write(f"v/{i}.arrow", rows, np.full(5000, 10)) for i in range(4)]
    for limit, fetches in ((4 * runs[0].bytes, 4), (2 * runs[0].bytes, 8)):
        Counted.fetched.clear()
        cache = RunCache(Counted(plain.prefix, plain.options, limit))
        for _ in range(2):
            found = StateReader(cache, runs, ["$h"]).scan(0)
            assert found is not None and len(found) == 5000
        assert len(Counted.fetched) == fetches
        assert len(cache._open) * runs[0].bytes == COPIES.bytes <= limit
        cache.forget([r.file for r in runs])
        assert COPIES.bytes == 0


def test_runs_are_fetched_several_at_a_time_as_far_as_they_fit(s3_endpoint: str) -> None:
    plain = storage_at(s3_endpoint, "together")
    rows = pl.DataFrame({"$h": np.arange(1000), "n": np.arange(1000)})
    runs = [RunCache(plain).write(f"v/{i}.arrow", rows, np.full(1000, 10)) for i in range(12)]
    Counted.fetched.clear()
    cache = RunCache(Counted(plain.prefix, plain.options, 10 * runs[0].bytes))
    cache.fetch(runs)
    assert sorted(Counted.fetched) == sorted(r.file for r in runs[:5]) == sorted(cache._open)
    assert COPIES.bytes == 5 * runs[0].bytes
    plain.delete([runs[7].file])
    with pytest.raises(HomeDamaged, match=r"v/7\.arrow is missing"):
        StateReader(cache, runs[6:9], ["$h"]).scan(0)
    cache.forget([r.file for r in runs])
    local = RunCache(Path())
    local.fetch(runs)  # files of a directory are mapped when they are read
    assert not local._open


def test_a_task_keeps_the_runs_that_were_used_in_its_epoch_or_the_one_before(tmp_path: Path) -> None:
    cache = RunCache(tmp_path)
    rows, ends = pl.DataFrame({"$h": [1]}), np.array([10])
    first, second = (cache.write(f"v/{name}.arrow", rows, ends) for name in ("1", "2"))
    cache.begin(1)
    cache.open(first)
    cache.open(second)
    cache.begin(2)
    assert sorted(cache._open) == [first.file, second.file]
    cache.open(second)
    third = cache.write("w/3.arrow", rows, ends)
    cache.begin(3)
    assert sorted(cache._open) == [second.file]
    cache.open(third)
    cache.begin(4)
    assert sorted(cache._open) == [third.file]
    cache.begin(5)
    assert not cache._open and not cache._trusted and not cache._used
    assert cache.open(first).batch(0)[0]["$h"].to_list() == [1]


def test_a_task_keeps_copies_of_runs_that_it_has_not_used_for_long(s3_endpoint: str) -> None:
    plain = storage_at(s3_endpoint, "idle")
    rows, ends = pl.DataFrame({"$h": [1], "n": [1]}), np.array([10])
    runs = [RunCache(plain).write(f"v/{i}.arrow", rows, ends) for i in range(3)]
    Counted.fetched.clear()
    cache = RunCache(Counted(plain.prefix, plain.options, 2 * runs[0].bytes))
    cache.begin(1)
    cache.open(runs[0])
    cache.begin(9)
    cache.open(runs[0])
    assert Counted.fetched == ["v/0.arrow"]
    cache.open(runs[1])
    cache.open(runs[2])  # beyond the limit: the one that was not used for longest goes
    assert sorted(cache._open) == sorted(cache._used) == ["v/1.arrow", "v/2.arrow"]
    cache.forget([r.file for r in runs])


def test_a_run_that_this_process_wrote_is_not_fetched(s3_endpoint: str) -> None:
    plain = storage_at(s3_endpoint, "own")
    Counted.fetched.clear()
    cache = RunCache(Counted(plain.prefix, plain.options))
    run = cache.write("v/1.arrow", pl.DataFrame({"$h": [1], "n": [1]}), np.array([10]))
    assert cache.open(run).batch(0)[0]["n"].to_list() == [1] and Counted.fetched == []
    again = cache.write("v/1.arrow", pl.DataFrame({"$h": [1], "n": [2]}), np.array([10]))  # the epoch is run again
    assert cache.open(again).batch(0)[0]["n"].to_list() == [2]
    other = RunCache(plain).write("v/1.arrow", pl.DataFrame({"$h": [1], "n": [3]}), np.array([10]))
    cache.trust([other.file])
    assert cache.open(other).batch(0)[0]["n"].to_list() == [3] and Counted.fetched == ["v/1.arrow"]
