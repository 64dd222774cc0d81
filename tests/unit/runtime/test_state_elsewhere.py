"""State outside the home, in a shared folder and on object storage: crashes, restarts, damage, checkpoints.

Object storage is the small server of `tests/object_server.py`. `make test` has some cases on the emulator too, and the
slow tests have all those there that name their places with `everywhere`. A storage that fails and a list that lags are
made by patching the client: they are on the small server only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

import millstream as ms
from millstream.engine.exchange import routes
from millstream.errors import DefinitionError, HomeDamaged, StorageFailed
from millstream.runtime import state_location
from millstream.runtime.epoch.kept_versions import KEPT_VERSIONS
from millstream.runtime.recovery import checkpoint, repair
from millstream.runtime.state_location import StateUri, recorded
from millstream.state import manifest, object_storage
from millstream.state.manifest import load_version, manifest_entries
from millstream.state.object_storage import ObjectStorage
from millstream.state.version import Version
from millstream.testing import Crash
from millstream.testing.script import STEPS
from tests import oracle
from tests.local import LocalScript

from .recovery_homes import SCHEMA, VIEWS, batch, flow, rows

FIXTURES = {"objects": "object_state", "emulator": "emulated_state"}
CRASHES, HARM = [(1, 512), (3, 512), (1, 0), (3, 0)], ["missing", "damaged"]
RESTORED = ["prepared", "noted", "put state.json", "put flows/counting/epochs"]


def everywhere(names: str = "", values: Sequence[Any] = ((),), **quick: Sequence[Any]) -> pytest.MarkDecorator:
    """All values with the state in all places; those that are not named for a place are slow."""
    cases = [
        pytest.param(state, *(value if isinstance(value, tuple) else (value,)), marks=marks)
        for state in ("folder", *FIXTURES)
        for value in values
        for marks in ([] if value in quick.get(state, ()) else [pytest.mark.slow],)
    ]
    return pytest.mark.parametrize(["state", *names.split()], cases, indirect=["state"])


@pytest.fixture
def state(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """All homes of the test have their state there."""
    if request.param in FIXTURES:
        return str(request.getfixturevalue(FIXTURES[request.param]))
    (tmp_path / "shared").mkdir()
    uri = f"file://{tmp_path}/shared"
    monkeypatch.setenv("MILLSTREAM_STATE", uri)
    return uri


def new_home(path: Path) -> Path:
    with ms.open(path) as home:
        home.log.create("bids", SCHEMA, segment_rows=3)
    return path


def step(script: LocalScript, number: int) -> None:
    script.home.topic("bids").append(rows(number))
    script.tick()


def check(script: LocalScript) -> None:
    """The views are those of a batch, and the storage has exactly what kept versions name."""
    topic = script.home.topic("bids")
    expected = batch(topic.read(0, 0, topic.end()[0]))
    for view, columns in VIEWS.items():
        oracle.same(script.rows(view), expected[view], columns)
    storage = script.home.open_home.state.of("counting").runs
    epochs = script.home.store.epochs("counting", KEPT_VERSIONS + 2)
    newest = load_version(epochs[0].version, storage).files
    assert newest and set(storage.sizes(newest)) == newest
    assert not list(script.path.glob("flows/*/state")) and not list(script.path.glob("flows/*/changes"))


def no_orphans(path: Path) -> None:
    """After a start, nothing is there that no kept version names."""
    with LocalScript(flow(), path, shards=1) as script:
        epochs = script.home.store.epochs("counting", KEPT_VERSIONS + 2)
        place = script.home.open_home.state.of("counting")
        kept = frozenset().union(*(load_version(e.version, place.runs).files for e in epochs))
        assert place.runs.names() <= kept and place.changes.names() == set()


@everywhere("shards inline", CRASHES, folder=[(1, 512), (3, 0)], objects=[(3, 512), (1, 0)], emulator=[(1, 512)])
def test_a_crash_between_any_two_steps_loses_and_repeats_nothing(
    tmp_path: Path, state: str, shards: int, inline: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "FILE_BYTES", 0)  # all changes of tasks are files
    monkeypatch.setattr(manifest, "INLINE_BATCHES", inline)
    path = new_home(tmp_path / "home")
    with LocalScript(flow(), path, shards=shards) as script:
        for number, at in enumerate(STEPS, 1):
            script.home.topic("bids").append(rows(number))
            script.crash(at=at)
            with pytest.raises(Crash):
                script.tick()
            script.resume()
            script.tick()
        check(script)
    no_orphans(path)


@everywhere(objects=[()])
def test_the_number_of_shards_changes_across_restarts(tmp_path: Path, state: str) -> None:
    path = new_home(tmp_path / "home")
    number = 0
    for shards in (2, 7, 3, 1):
        with LocalScript(flow(), path, shards=shards) as script:
            for _ in range(3):
                number += 1
                step(script, number)
            check(script)
    with LocalScript(flow(), path, shards=2) as script:
        for shards in (2, 7, 3):  # between two epochs
            script._loop.engine.shards = shards  # type: ignore[union-attr]
            number += 1
            step(script, number)
        check(script)
    no_orphans(path)


@everywhere(objects=[()])
def test_old_runs_go_while_the_flow_runs(tmp_path: Path, state: str) -> None:
    path = new_home(tmp_path / "home")
    with LocalScript(flow(), path, shards=2) as script:
        most = 0
        for number in range(1, 6 * KEPT_VERSIONS):
            step(script, number)
            most = max(most, len(script.home.open_home.state.of("counting").runs.names()))
        check(script)
        assert most < 6 * KEPT_VERSIONS * 3
    no_orphans(path)


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_manifest_that_is_missing_or_damaged_is_named_and_repaired_from_a_checkpoint(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "INLINE_BATCHES", 0)
    path = new_home(tmp_path / "home")
    with LocalScript(flow(), path, shards=1) as script:
        for number in (1, 2, 3):
            step(script, number)
        script.home.checkpoint("three")
        row = script.home.store.last("counting")
        assert row is not None
        entry = manifest_entries(row.version)[0]
        file = path / "flows/counting/state" / entry["file"]
    whole = file.read_bytes()
    file.write_bytes(whole[:-1]) if how == "damaged" else file.unlink()
    with pytest.raises(HomeDamaged, match=f"the state file {file} (is missing|does not match its checksum)"):
        LocalScript(flow(), path, shards=1)
    (finding,) = [f for f in repair.look(path) if not f.harmless]
    assert str(file) in finding.problem and "checkpoints/three" in finding.would
    lock = repair.locked(path)
    repair.mend(path, [finding])
    lock.release()
    assert file.read_bytes() == whole
    with LocalScript(flow(), path, shards=2) as script:
        step(script, 4)
        topic = script.home.topic("bids")
        oracle.same(script.rows("totals"), batch(topic.read(0, 0, topic.end()[0]))["totals"], VIEWS["totals"])


@everywhere("how", HARM, folder=["missing"], objects=["damaged"], emulator=["missing"])
def test_a_missing_or_damaged_file_is_named_and_repaired_from_a_checkpoint(
    tmp_path: Path, state: str, how: str
) -> None:
    path = new_home(tmp_path / "home")
    with LocalScript(flow(), path, shards=1) as script:
        for number in (1, 2, 3):
            step(script, number)
        script.home.checkpoint("three")
        storage = script.home.open_home.state.of("counting").runs
        row = script.home.store.last("counting")
        assert row is not None
        run = Version.from_json(row.version).of("totals")[-1]
    whole = storage.map(run.file).to_pybytes()
    if how == "missing":
        storage.delete([run.file])
        with pytest.raises(HomeDamaged, match=f"the state file {storage.place(run.file)} is missing"):
            LocalScript(flow(), path, shards=1)
    else:
        storage.put(run.file, whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        with (
            LocalScript(flow(), path, shards=1) as script,
            pytest.raises(HomeDamaged, match=f"{storage.place(run.file)} does not match its checksum"),
        ):
            step(script, 4)
    (finding,) = [f for f in repair.look(path) if not f.harmless]
    assert storage.place(run.file) in finding.problem and "checkpoints/three" in finding.would
    lock = repair.locked(path)
    repair.mend(path, [finding])
    lock.release()
    assert storage.map(run.file).to_pybytes() == whole
    with LocalScript(flow(), path, shards=2) as script:
        script.tick()
        step(script, 5)
        check(script)


@everywhere(folder=[()], emulator=[()])
def test_without_a_checkpoint_the_flow_is_recomputed(tmp_path: Path, state: str) -> None:
    path = new_home(tmp_path / "home")
    with LocalScript(flow(), path, shards=1) as script:
        step(script, 1)
        step(script, 2)
        storage = script.home.open_home.state.of("counting").runs
    storage.delete(storage.names())
    findings = repair.look(path)
    lock = repair.locked(path)
    repair.mend(path, findings)
    lock.release()
    with LocalScript(flow(), path, shards=1) as script:
        script.tick()
        check(script)


@everywhere(folder=[()], emulator=[()])
def test_a_checkpoint_is_restored_to_a_new_place_and_the_old_one_stays(tmp_path: Path, state: str) -> None:
    path = new_home(tmp_path / "home")
    with LocalScript(flow(), path, shards=2) as script:
        for number in (1, 2):
            step(script, number)
        script.home.checkpoint("two")
        for number in (3, 4, 5):
            step(script, number)
        before = script.home.open_home.state
        files = before.of("counting").runs.names()
    with ms.open(path):
        checkpoint.restore(path, "two")
    after = recorded(path)
    assert after.id != before.id and after.uri == before.uri
    assert before.of("counting").runs.names() == files
    with LocalScript(flow(), path, shards=3) as script:
        assert script.home.open_home.state.id == after.id
        script.tick()
        step(script, 6)
        check(script)


@everywhere("at", RESTORED, folder=RESTORED[::2], objects=RESTORED[1::2])
def test_a_restore_that_dies_is_completed_or_discarded(tmp_path: Path, state: str, at: str) -> None:
    path = new_home(tmp_path / "home")
    with LocalScript(flow(), path, shards=1) as script:
        step(script, 1)
        script.home.checkpoint("one")
        step(script, 2)

    def die(reached: str) -> None:
        if reached == at:
            raise Crash(reached)

    with ms.open(path), pytest.raises(Crash):
        checkpoint.restore(path, "one", failpoint=die)
    with LocalScript(flow(), path, shards=1) as script:
        script.tick()
        step(script, 3)
        check(script)


def test_a_checkpoint_moves_state_from_one_place_to_another(
    tmp_path: Path, emulated_state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MILLSTREAM_STATE")
    path = new_home(tmp_path / "home")
    with LocalScript(flow(), path, shards=1) as script:
        step(script, 1)
        saved = script.home.checkpoint("one", tmp_path / "saved")
    with pytest.raises(DefinitionError, match=r"is in .*home, not in s3://"):
        ms.open(path, state=emulated_state)
    with ms.open(path):
        pass  # nothing was changed by that
    fresh = new_home(tmp_path / "fresh")
    with ms.open(fresh, state=emulated_state) as home:
        home.topic("bids").append(rows(1))
        checkpoint.restore(fresh, str(saved))
    with LocalScript(flow(), fresh, shards=1) as script:
        step(script, 2)
        check(script)


# ---------------------------------------------------------------- a storage that fails


def test_a_storage_that_does_not_answer_stops_the_epoch_and_nothing_is_lost(
    tmp_path: Path, object_state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(object_storage.time, "sleep", pauses.append)
    path = new_home(tmp_path / "home")
    with LocalScript(flow(), path, shards=2) as script:
        step(script, 1)
        client = object_storage._file_system
        failures = 0
        for works in range(20):  # requests of the epoch that are answered before the storage fails
            script.home.topic("bids").append(rows(2 + works))
            left = [works]

            def failing(options: object, left: list[int] = left) -> object:
                left[0] -= 1
                if left[0] < 0:
                    raise OSError("AWS Error NETWORK_CONNECTION: connection refused")
                return client(options)  # type: ignore[arg-type]

            monkeypatch.setattr(object_storage, "_file_system", failing)
            try:
                script.tick()
            except StorageFailed as error:
                failures += 1
                assert "s3://states/" in error.message and "does not answer" in error.message and error.exit_code == 5
            monkeypatch.setattr(object_storage, "_file_system", client)
            script.crash().resume()
            script.tick()
            check(script)
            if left[0] >= 0:
                break  # all requests of an epoch were answered
        assert failures > 3
    assert pauses
    no_orphans(path)


def test_a_listing_that_lags_behind_changes_nothing(
    tmp_path: Path, object_state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, names = dict[str, set[str]](), ObjectStorage.names

    def lagging(storage: ObjectStorage) -> set[str]:
        old = listed.get(storage.prefix, set())
        listed[storage.prefix] = names(storage)
        return old  # what is new is missing, and what is gone is listed

    monkeypatch.setattr(ObjectStorage, "names", lagging)
    path = new_home(tmp_path / "home")
    number = 0
    for at in STEPS:
        with LocalScript(flow(), path, shards=2) as script:
            for _ in range(4):
                number += 1
                step(script, number)
            script.home.topic("bids").append(rows(number := number + 1))
            script.crash(at=at)
            with pytest.raises(Crash):
                script.tick()
            script.resume(shards=3)
            script.tick()
            check(script)


# ---------------------------------------------------------------- places


def test_a_place_is_recorded_and_given_once(
    tmp_path: Path, emulated_state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ms.open(tmp_path / "home") as home:
        place = home.open_home.state
    assert place.uri is not None and emulated_state.startswith(place.uri.place)
    monkeypatch.delenv("MILLSTREAM_STATE")
    with ms.open(tmp_path / "home") as home:
        assert home.open_home.state == place
    with pytest.raises(DefinitionError, match=r"the state of the home .* is in s3://.*, not in s3://other"):
        ms.open(tmp_path / "home", state="s3://other")
    with ms.open(tmp_path / "second", state=emulated_state) as home:  # two homes never share a file
        assert home.open_home.state.id != place.id
    (tmp_path / "home" / state_location.FILE).unlink()
    assert recorded(tmp_path / "home") == place  # from the copy
    (tmp_path / "home" / state_location.COPY).write_bytes(orjson.dumps({"format": 1}))
    with pytest.raises(HomeDamaged, match=r"state\.json\.copy cannot be read"):
        recorded(tmp_path / "home")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s3://key:secret@bucket/x", "must not have credentials"),
        ("s3://bucket/x?color=red", "unknown option `color`"),
        ("file://host/x", "does not name an absolute path"),
        ("file:///x?region=a", "unknown option `region`"),
        ("ftp://host/x", "is not a place for state"),
        ("s3:///x", "is not a place for state"),
    ],
)
def test_a_uri_that_cannot_be_used_is_refused_without_its_secrets(text: str, said: str) -> None:
    with pytest.raises(DefinitionError, match=said) as caught:
        StateUri.parse(text)
    assert "secret" not in str(caught.value).replace("AWS_SECRET_ACCESS_KEY", "") and caught.value.hint


def test_a_uri_is_read_and_written_again() -> None:
    uri = StateUri.parse("s3://bucket/a//b/?endpoint=http://127.0.0.1:9000&region=eu-1")
    assert uri == StateUri("s3", "bucket/a/b", "http://127.0.0.1:9000", "eu-1") and StateUri.parse(uri.text()) == uri
    assert StateUri.parse("file:///a/../b/") == StateUri.parse("/b") == StateUri("file", "/b")


@everywhere(folder=[()], objects=[()], emulator=[()])
def test_a_dropped_flow_leaves_nothing_on_the_storage(tmp_path: Path, state: str) -> None:
    path = new_home(tmp_path / "home")
    with LocalScript(flow(), path, shards=1) as script:
        step(script, 1)
        place = script.home.open_home.state
        assert place.of("counting").runs.names()
        place.drop("counting")
        assert not place.of("counting").runs.names()
