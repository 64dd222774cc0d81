"""Manifests: what is saved is loaded, after any epochs, expiry and merges, and only what is new is written."""

from __future__ import annotations

import tempfile
import zlib
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import HomeDamaged, HomeTooNew
from millstream.state import manifest
from millstream.state.local_storage import LocalStorage
from millstream.state.manifest import INLINE_BATCHES, load_version, manifest_entries, save_version
from millstream.state.run import Batch, StateRun
from millstream.state.version import Version


def run(name: str, lasts: list[int]) -> StateRun:
    return StateRun(f"v/{name}.arrow", 1, 2, tuple(Batch(1, t, t) for t in lasts), (0, 1), (("$x", 1, 2),))


EPOCHS = st.lists(
    st.tuples(
        st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), max_size=3),  # the batches of its runs
        st.integers(0, 6),  # by how much the watermark moves
        st.one_of(st.none(), st.tuples(st.integers(0, 9), st.integers(2, 5))),  # a merge of neighbors after it
        st.booleans(),  # whether the flow is started again after it
    ),
    max_size=20,
)


@settings(max_examples=100)
@given(EPOCHS)
def test_a_version_is_loaded_as_it_was_saved(epochs: list[Any]) -> None:
    limit, most = manifest.INLINE_BATCHES, manifest.MOST_MANIFESTS
    manifest.INLINE_BATCHES, manifest.MOST_MANIFESTS = 4, 3  # so that few epochs reach all cases
    try:
        with tempfile.TemporaryDirectory() as folder:
            storage, version, watermark = LocalStorage(Path(folder)), Version(), 0
            for number, (added, step, merging, restarts) in enumerate(epochs):
                watermark += step
                runs = [run(f"{number}-{i}", [watermark + 1 + t for t in lasts]) for i, lasts in enumerate(added)]
                version = version.advance("v", runs, watermark).advance("w", runs[:1], watermark)
                data, version = save_version(version, storage, f"{number:012d}-1")
                loaded = load_version(data, storage)
                assert {s: r for s, r in loaded.runs.items() if r} == {s: r for s, r in version.runs.items() if r}
                assert loaded.files == version.files
                assert {m["file"] for m in manifest_entries(data)} <= version.files & storage.names()
                assert all(len(e["manifests"]) <= 3 for e in data.values() if isinstance(e, dict))
                version = loaded if restarts else version
                if merging is not None:
                    old = version.of("v")[merging[0] : merging[0] + merging[1]]
                    merged = run(f"{number}-c", [b.last for r in old for b in r.batches if not b.dropped])
                    version = version.replaced("v", old, [merged] if old else [])
    finally:
        manifest.INLINE_BATCHES, manifest.MOST_MANIFESTS = limit, most


def test_a_small_version_has_no_manifests_and_is_as_it_was_before(tmp_path: Path) -> None:
    version = Version({"v": (run("1", [1, 2]),)})
    data, saved = save_version(version, LocalStorage(tmp_path), "1")
    assert data == version.to_json() and not saved.manifests and list(tmp_path.iterdir()) == []


def test_an_epoch_writes_only_what_it_adds(tmp_path: Path) -> None:
    storage, version = LocalStorage(tmp_path), Version()
    for epoch in range(1, 4):
        runs = [run(f"{epoch}-{i}", [1000 + epoch] * 2) for i in range(INLINE_BATCHES)]
        data, version = save_version(version.advance("v", runs, 0), storage, f"{epoch:012d}-1")
        assert [m["file"] for m in manifest_entries(data)] == [f"v/{e:012d}-1.runs" for e in range(1, epoch + 1)]
        assert data["v"]["runs"] == []
    assert len(load_version(data, storage).of("v")) == 3 * INLINE_BATCHES
    data, version = save_version(version.advance("v", [run("4", [2000])], 1001), storage, "000000000004-1")
    assert [m["expired"] for m in manifest_entries(data)] == [None, None] and len(data["v"]["runs"]) == 1
    assert len(load_version(data, storage).of("v")) == 2 * INLINE_BATCHES + 1


def test_a_manifest_stays_as_it_is_while_its_batches_expire(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    runs = [run(f"1-{i}", [1000 + i % 3, 2000]) for i in range(INLINE_BATCHES)]
    data, version = save_version(Version().advance("v", runs, 0), storage, "000000000001-1")
    (written,) = manifest_entries(data)
    for watermark in (1000, 1001, 1001):
        data, version = save_version(version.advance("v", [], watermark), storage, "000000000002-1")
        assert manifest_entries(data) == [written | {"expired": watermark}]
        loaded = load_version(data, storage)
        assert loaded == version and loaded.rows("v") == sum(b.last > watermark for r in runs for b in r.batches)
    data, version = save_version(version.advance("v", [], 2000), storage, "000000000003-1")
    assert data == {} and version.of("v") == ()


def test_a_merge_of_some_runs_writes_the_manifest_of_their_block_again_and_no_other(tmp_path: Path) -> None:
    storage, version = LocalStorage(tmp_path), Version()
    for epoch in range(1, 4):
        runs = [run(f"{epoch}-{i}", [9000]) for i in range(INLINE_BATCHES + 1)]
        data, version = save_version(version.advance("v", runs, 0), storage, f"{epoch:012d}-1")
    old = version.of("v")[INLINE_BATCHES + 5 : INLINE_BATCHES + 9]
    data, _ = save_version(version.replaced("v", old, [run("m", [9000])]), storage, "000000000004-1")
    files = [m["file"] for m in manifest_entries(data)]
    assert files == ["v/000000000001-1.runs", "v/000000000004-1.runs", "v/000000000003-1.runs"]
    names = [r.file for r in version.of("v")]
    at = names.index(old[0].file)
    assert [r.file for r in load_version(data, storage).of("v")] == [*names[:at], "v/m.arrow", *names[at + 4 :]]


def test_manifests_of_many_epochs_are_joined_and_a_run_is_described_few_times(tmp_path: Path) -> None:
    storage, version, described = LocalStorage(tmp_path), Version(), 0
    for epoch in range(1, 101):
        runs = [run(f"{epoch}-{i}", [9000]) for i in range(3)]
        limit, manifest.INLINE_BATCHES = manifest.INLINE_BATCHES, 2
        try:
            data, version = save_version(version.advance("v", runs, 0), storage, f"{epoch:012d}-1")
        finally:
            manifest.INLINE_BATCHES = limit
        blocks = version.list_of("v").blocks
        assert len(blocks) <= manifest.MOST_MANIFESTS
        described += sum(len(b) for b in blocks if b.manifest and b.manifest.file == f"v/{epoch:012d}-1.runs")
    assert load_version(data, storage) == version and len(version.of("v")) == 300
    assert described <= 300 * 8, "a run is described again only as its block grows"


def test_a_manifest_of_an_earlier_version_is_read_and_one_of_a_later_version_is_refused(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    runs = [run(f"1-{i}", [5, 9]) for i in range(3)]
    content = orjson.dumps({"format": 1, "runs": [r.to_json() for r in runs]})
    storage.put("v/1.runs", content)
    entry = {"file": "v/1.runs", "crc": zlib.crc32(content), "bytes": len(content), "expired": 5}
    loaded = load_version({"v": {"manifests": [entry], "runs": [run("2", [7]).to_json()]}}, storage)
    assert loaded == Version({"v": (*runs, run("2", [7]))}).advance("v", [], 5)
    content = orjson.dumps({"format": 3})
    storage.put("v/1.runs", content)
    entry |= {"crc": zlib.crc32(content), "bytes": len(content)}
    with pytest.raises(HomeTooNew, match=r"v/1\.runs has format 3"):
        load_version({"v": {"manifests": [entry], "runs": []}}, storage)


def test_a_missing_or_damaged_manifest_is_named(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    data, _ = save_version(Version({"v": (run("1", [5] * 1000),)}), storage, "000000000001-1")
    (entry,) = manifest_entries(data)
    whole = storage.map(entry["file"]).to_pybytes()
    storage.put(entry["file"], whole.replace(b"5", b"6", 1))
    with pytest.raises(HomeDamaged, match=r"000000000001-1\.runs does not match its checksum"):
        load_version(data, storage)
    storage.delete([entry["file"]])
    with pytest.raises(HomeDamaged, match=r"000000000001-1\.runs is missing"):
        load_version(data, storage)
