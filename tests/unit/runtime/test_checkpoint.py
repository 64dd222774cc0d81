"""Checkpoints: the whole home between two epochs, also while flows run; put back whole, or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

import millstream as ms
from millstream.clock import SystemClock
from millstream.errors import DefinitionError, HomeDamaged, HomeTooNew, UnknownName
from millstream.home import Home
from millstream.log import Log
from millstream.runtime.epoch.kept_versions import KEPT_VERSIONS
from millstream.runtime.recovery import checkpoint
from millstream.runtime.state_location import StateLocation
from millstream.runtime.supervision.lease import HomeLock
from millstream.state.version import Version
from millstream.store.duckdb import DuckStore
from tests.local import LocalScript

from .recovery_homes import EPOCHS, flip, flow, go_on, hashes, last, prepare, rows, said_by


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("homes"))


@pytest.fixture
def home(homes: Path, tmp_path: Path) -> Path:
    shutil.copytree(homes / str(EPOCHS), tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def owned(home: Path) -> Iterator[Path]:
    lock = HomeLock(home / "lock")
    yield home
    lock.release()


def save(home: Path, name: str = "one", **more: Any) -> Path:
    with ms.open(home) as opened:
        return opened.checkpoint(name, **more)


def restore(home: Path, name: str, **more: Any) -> Path:
    lock = HomeLock(home / "lock")
    try:
        return checkpoint.restore(home, name, **more)
    finally:
        lock.release()


def generation(home: Path) -> int:
    store = DuckStore(home / "store.duckdb", read_only=True)
    try:
        return store.generation("counting")
    finally:
        store.close()


def test_a_home_goes_back_to_a_checkpoint_and_on_from_there(home: Path) -> None:
    before = hashes(home)
    folder = save(home)
    assert folder == home / "checkpoints" / "one"
    added = {k for k, v in hashes(home).items() if before.get(k) != v and not k.startswith("checkpoints")}
    hold = "log/bids/holds/checkpoint.one.json"
    assert added == {hold, f"{hold}.copy"}, "what it needs of the topic is held"
    go_on(home)
    kept = restore(home, "one")
    assert (kept / "done.json").exists() and (kept / "store.duckdb").exists()
    row = last(home)
    assert row is not None and row.number == EPOCHS
    go_on(home)  # the topic has what came since


def test_a_checkpoint_can_be_carried_to_a_new_home(home: Path, tmp_path: Path) -> None:
    folder = save(home, to=tmp_path / "carried")
    shutil.move(folder, tmp_path / "elsewhere")
    shutil.copytree(home / "log", tmp_path / "log")
    shutil.rmtree(home)
    with ms.open(tmp_path / "new") as opened:
        path = opened.path
    shutil.copytree(tmp_path / "log", path / "log")
    restore(path, str(tmp_path / "elsewhere"))
    go_on(path)


def test_each_restore_is_a_new_generation(home: Path) -> None:
    save(home)
    seen = [generation(home)]
    for _ in range(3):
        restore(home, "one")
        seen.append(generation(home))
    assert seen == [0, 1, 2, 3]
    flip(home / "store.duckdb", 5000)  # how often it was put back is not known any more
    restore(home, "one")
    assert generation(home) > 1_700_000_000
    go_on(home)


def test_a_checkpoint_is_that_of_one_epoch_while_the_flow_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "home"
    with ms.open(path) as opened:
        opened.topic("bids", schema="auction BIGINT, price BIGINT, ts TIMESTAMP")
    with LocalScript(flow(), path, shards=1) as script:
        topic, done = script.home.topic("bids"), threading.Event()
        saved: list[Path] = []

        def saving() -> None:
            while not done.is_set():
                saved.append(script.home.checkpoint(f"c{len(saved)}"))

        saver = threading.Thread(target=saving)
        saver.start()
        for batch in range(2 * KEPT_VERSIONS + 4):
            topic.append(rows(batch % EPOCHS))
            script.tick(1)
        done.set()
        saver.join()
        script.crash()
        for folder in (saved[0], saved[len(saved) // 2], saved[-1]):
            manifest = checkpoint.verify(folder)
            if not manifest.flows:
                continue  # before the first epoch
            store = DuckStore(folder / "store.duckdb", read_only=True)
            row = store.last("counting")
            assert row is not None and row.number == manifest.flows["counting"]["epoch"]
            total = store.query("SELECT sum(n) AS n FROM totals")["n"][0].as_py()
            store.close()
            assert total == row.progress["offsets"]["bids"]["0"]
            files = Version.from_json(row.version).files
            assert all((folder / "flows/counting/state" / f).exists() for f in files)
        restore(path, saved[len(saved) // 2].name)


def test_a_version_that_is_being_copied_is_not_collected(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy stands still while the flow does many epochs, and still finds every file."""
    copying, go = threading.Event(), threading.Event()
    copy = checkpoint._copy_all

    def slowly(*given: Any) -> None:
        copying.set()
        assert go.wait(60)
        copy(*given)

    monkeypatch.setattr(checkpoint, "_copy_all", slowly)
    with LocalScript(flow(), home, shards=1) as script:
        saver = threading.Thread(target=script.home.checkpoint, args=("one",))
        saver.start()
        assert copying.wait(60)
        before = last_files(script)
        for batch in range(3 * KEPT_VERSIONS):
            script.home.topic("bids").append(rows(EPOCHS + 1 + batch))
            script.tick(1)
        state = home / "flows/counting/state"
        assert all((state / f).exists() for f in before)
        go.set()
        saver.join()
        script.home.topic("bids").append(rows(EPOCHS + 1))
        script.tick(1)
        assert not all((state / f).exists() for f in before)
        assert checkpoint.verify(home / "checkpoints" / "one").flows["counting"]["epoch"] == EPOCHS
    assert not list((home / "checkpoints").glob(".*"))


def last_files(script: LocalScript) -> frozenset[str]:
    row = script.home.store.last("counting")
    assert row is not None
    return Version.from_json(row.version).files


def test_the_versions_of_the_last_epochs_stay_also_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "home"
    with ms.open(path) as opened:
        opened.topic("bids", schema="auction BIGINT, price BIGINT, ts TIMESTAMP")
    with LocalScript(flow(), path, shards=1) as script:
        for batch in range(4 * KEPT_VERSIONS):
            script.home.topic("bids").append(rows(batch))
            script.tick(1)
            if batch % 3 == 2:
                script.crash().resume()
            kept = script.home.store.epochs("counting", KEPT_VERSIONS)
            named = {f for r in kept for f in Version.from_json(r.version).files}
            state = path / "flows/counting/state"
            there = {str(p.relative_to(state)) for p in state.glob("*/*")}
            assert named <= there
        assert len(there) < 100


def test_damage_is_found_before_anything_is_touched(home: Path) -> None:
    folder = save(home)
    manifest = checkpoint.verify(folder)
    for name in manifest.files:
        whole = (folder / name).read_bytes()
        flip(folder / name, len(whole) // 2)
        before = hashes(home)
        with pytest.raises(HomeDamaged, match=r"does not match its checksum") as caught:
            restore(home, "one")
        assert name in str(caught.value) and hashes(home) == before
        (folder / name).unlink()
        with pytest.raises(HomeDamaged, match="is missing"):
            restore(home, "one")
        (folder / name).write_bytes(whole)
    flip(folder / "manifest.json", 30)
    with pytest.raises(HomeDamaged, match=r"manifest\.json cannot be read"):
        restore(home, "one")
    (row,) = checkpoint.listed(home)
    assert "cannot be read" in row["problem"]


@pytest.mark.parametrize("key", ["format", "home", "runs"])
def test_a_checkpoint_of_a_newer_format_is_refused(home: Path, key: str) -> None:
    path = save(home) / "manifest.json"
    path.write_bytes(orjson.dumps({**orjson.loads(path.read_bytes()), key: 99}))
    before = hashes(home)
    with pytest.raises(HomeTooNew, match="newer format"):
        restore(home, "one")
    assert hashes(home) == before


class Dies(BaseException):
    """The process ends here."""


@pytest.mark.slow
def test_a_restore_that_dies_anywhere_is_finished_or_forgotten(home: Path, tmp_path: Path) -> None:
    save(home)
    with LocalScript(flow(), home, shards=1) as script:
        script.home.topic("bids").append(rows(EPOCHS + 1))
        script.tick(1)
    steps: list[str] = []
    shutil.copytree(home, tmp_path / "seen", ignore=shutil.ignore_patterns("lock", "query.sock"))
    restore(tmp_path / "seen", "one", failpoint=steps.append)
    assert steps[:2] == ["prepared", "noted"] and len(steps) > 8
    for die in steps:
        path = tmp_path / "dies"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(home, path, ignore=shutil.ignore_patterns("lock", "query.sock"))

        def at(step: str, die: str = die) -> None:
            if step == die:
                raise Dies

        with pytest.raises(Dies):
            restore(path, "one", failpoint=at)
        with ms.open(path):
            pass
        row = last(path)
        assert row is not None and row.number == (EPOCHS + 1 if die == "prepared" else EPOCHS), die
        assert generation(path) == (0 if die == "prepared" else 1)
        left = list((path / "repair").glob("*/swap.json")) + list((path / "repair").glob("*/.new"))
        assert not left
    go_on(path)


def test_damaged_state_is_not_saved(home: Path) -> None:
    row = last(home)
    assert row is not None
    file = next(iter(Version.from_json(row.version).files))
    flip(home / "flows/counting/state" / file, 700)
    with pytest.raises(HomeDamaged, match=f"{file} does not match"):
        save(home)
    (home / "flows/counting/state" / file).unlink()
    with pytest.raises(HomeDamaged, match=f"{file} is missing"):
        save(home)
    assert not (home / "checkpoints").exists()


def test_a_checkpoint_does_not_break_with_the_home(home: Path) -> None:
    folder = save(home)
    for path in (home / "flows").rglob("*"):
        if path.is_file():
            flip(path, path.stat().st_size // 2)
    checkpoint.verify(folder)


def test_a_checkpoint_is_held_before_it_has_its_name(home: Path) -> None:
    def died(step: str) -> None:
        raise KeyboardInterrupt(step)

    def holds(opened: Home) -> set[str]:
        return {r for r in opened.log.topic("bids").holds() if r in ("checkpoint.one", "checkpoint.two")}

    with ms.open(home) as opened:
        with pytest.raises(KeyboardInterrupt, match="held"):
            checkpoint.save(opened.open_home.state, opened.store, opened.log, "one", 1, failpoint=died)
        assert holds(opened) == {"checkpoint.one"}
        (home / "checkpoints/.one.new").mkdir(parents=True)  # as a kill leaves it
    with ms.open(home) as opened:
        assert holds(opened) == set(), "there is no such checkpoint"
        opened.checkpoint("two")
        (home / "checkpoints/.two.new").mkdir()
    with ms.open(home) as opened:
        assert holds(opened) == {"checkpoint.two"}


def test_names_are_checked_listed_and_dropped(owned: Path) -> None:
    store, log = DuckStore(owned / "store.duckdb"), Log(owned / "log", SystemClock())
    for number, name in enumerate(("b", "a")):
        checkpoint.save(StateLocation(owned), store, log, name, number)
    with pytest.raises(DefinitionError, match=r"there is a checkpoint .* already"):
        checkpoint.save(StateLocation(owned), store, log, "a", 3)
    with pytest.raises(DefinitionError, match="is not a valid name"):
        checkpoint.save(StateLocation(owned), store, log, "../a", 3)
    store.close()
    assert [r["checkpoint"] for r in checkpoint.listed(owned)] == ["a", "b"]
    assert checkpoint.listed(owned)[0]["flows"] == {"counting": EPOCHS}
    checkpoint.drop(owned, "a", log)
    assert os.listdir(owned / "checkpoints") == ["b"]
    assert "checkpoint.a" not in log.topic("bids").holds()
    with pytest.raises(UnknownName, match="there is no checkpoint `a`") as caught:
        checkpoint.drop(owned, "a", log)
    assert caught.value.detail == "there are: b"


def test_the_command_saves_lists_restores_and_drops(home: Path) -> None:
    assert said_by("checkpoint", "save", "one", "--home", home) == (0, f"kept in {home / 'checkpoints/one'}\n")
    code, said = said_by("checkpoint", "list", "--home", home)
    assert code == 0 and "one" in said and f"counting {EPOCHS}" in said
    before = hashes(home)
    code, said = said_by("checkpoint", "restore", "one", "--home", home)
    assert code == 0 and "nothing was changed" in said and f"counting goes back to epoch {EPOCHS}" in said
    assert hashes(home) == before
    code, said = said_by("checkpoint", "restore", "one", "--yes", "--home", home)
    assert code == 0 and f"what was there is in {home / 'repair'}" in said
    assert said_by("checkpoint", "drop", "one", "--home", home)[0] == 0
    code, said = said_by("checkpoint", "restore", "one", "--home", home)
    assert code == 2 and "there is no checkpoint `one`" in said
    assert said_by("checkpoint", "save", "one", "--home", home.parent / "nowhere")[0] == 4


COMMAND = """
import sys
from millstream.cli.app import guarded
from millstream.cli.commands.home.checkpoint import command
from millstream.cli.options import Settings
sys.exit(guarded(Settings(), lambda: command.main(sys.argv[1:], standalone_mode=False, obj=Settings())))
"""


def test_the_owner_of_a_home_saves_for_another_process(home: Path) -> None:
    command = [sys.executable, "-c", COMMAND]
    with Home(home) as opened:
        assert opened.store.last("counting") is not None
        done = subprocess.run(
            [*command, "save", "two", "--home", str(home)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        refused = subprocess.run(
            [*command, "restore", "two", "--home", str(home)], capture_output=True, text=True, check=False
        )
    assert refused.returncode == 4 and f"in use by process {os.getpid()}" in refused.stderr
    manifest = checkpoint.verify(home / "checkpoints" / "two")
    assert replace(manifest, files={}).flows["counting"]["epoch"] == EPOCHS


def test_a_checkpoint_to_a_place_that_cannot_be_written_is_refused_with_the_place(tmp_path: Path) -> None:
    with Home(tmp_path / "home") as home:
        home.put_table("t", pa.table({"i": [1]}))
        (tmp_path / "file").write_text("no folder")
        with pytest.raises(DefinitionError, match=r"cannot be written to .*file"):
            home.checkpoint("c", to=tmp_path / "file")
        assert not (home.path / "checkpoints").exists() or not list((home.path / "checkpoints").iterdir())
