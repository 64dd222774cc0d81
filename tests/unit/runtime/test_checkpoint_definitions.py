"""Checkpoints hold the definitions of SQL: a home that goes back has the views it had, and no others."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.home import Home
from millstream.model.types.schema import TIMESTAMP
from millstream.runtime.recovery import checkpoint, repair
from tests.unit.live.world import BIDS, HOT, opened

from .recovery_homes import flip, said_by

SCHEMA = pa.schema([("auction", pa.int64()), ("price", pa.int64()), ("ts", TIMESTAMP)])
BASE = 1_767_225_600_000_000


def bids(*prices: int) -> pa.Table:
    times = pa.array([BASE + p for p in prices], pa.int64()).cast(TIMESTAMP)
    return pa.table({"auction": [p % 2 for p in prices], "price": prices, "ts": times}, schema=SCHEMA)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a source, a view, a sink and a table; a checkpoint `one`; and then two more bids."""
    path = tmp_path_factory.mktemp("built") / "home"
    with opened(path) as one:
        topic = one.home.log.create("bids", SCHEMA)
        topic.append(bids(1, 2, 3))
        one.say(BIDS, HOT, "CREATE SINK told FROM hot INTO LOG('told')")
        one.say("CREATE TABLE items (id BIGINT PRIMARY KEY)", "INSERT INTO items VALUES (1)")
        one.perform("bids")
        one.home.checkpoint("one")
        topic.append(bids(4, 5))
        one.perform("bids")
    return path


@pytest.fixture
def home(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path / "home", ignore=shutil.ignore_patterns("lock", "query.sock"))
    return tmp_path / "home"


def restore(home: Path, name: str = "one", **more: Any) -> Path:
    with Home(home) as owner:
        return checkpoint.restore(owner.path, name, **more)


def definitions(home: Path) -> list[str]:
    with opened(home) as one:
        assert not one.live.broken
        return sorted(one.live.definitions.entries)


def whole(home: Path) -> None:
    """The home has all it had, and its flow computes all bids."""
    assert repair.look(home) == []
    with opened(home) as one:
        assert sorted(one.live.definitions.entries) == ["bids", "hot", "items", "told"]
        one.perform("bids")
        assert one.rows("SELECT auction, n FROM hot ORDER BY auction") == [
            {"auction": 0, "n": 2},
            {"auction": 1, "n": 3},
        ]
        assert one.rows("SELECT id FROM items") == [{"id": 1}]
    assert repair.look(home) == []


@pytest.mark.parametrize(
    "changes",
    [
        ("DROP SOURCE bids CASCADE", "DROP TABLE items"),
        (
            "DROP SINK told",
            "CREATE OR REPLACE VIEW hot AS SELECT auction, max(price) AS m FROM bids GROUP BY auction",
            "CREATE VIEW later WITH (flow = 'second') AS SELECT auction, price FROM bids",
            "CREATE TABLE other (id BIGINT)",
        ),
    ],
)
def test_a_restore_puts_definitions_back(home: Path, changes: tuple[str, ...]) -> None:
    with opened(home) as one:
        one.say(*changes)
    kept = restore(home)
    assert (kept / "catalog.json").exists(), "the definitions from before the restore are kept"
    whole(home)
    assert not (home / "flows" / "second").exists()
    with opened(home) as one:
        assert set(one.home.log.topic("bids").holds()) == {"bids.bids", "checkpoint.one"}


def test_the_command_says_which_definitions_change(home: Path) -> None:
    with opened(home) as one:
        one.say("DROP TABLE items", "CREATE VIEW later AS SELECT price FROM bids")
    code, said = said_by("checkpoint", "restore", "one", "--home", home)
    assert code == 0
    assert "created or replaced since then, and undone: view later" in said and "defined again: table items" in said
    flip(home / "store.duckdb", 5000)
    code, said = said_by("repair", "--home", home)
    assert code == 4 and "created or replaced since then, and undone: view later" in said


def test_a_checkpoint_carried_to_a_new_home_brings_its_definitions(home: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    with Home(new):
        pass
    said = said_by("checkpoint", "restore", home / "checkpoints" / "one", "--yes", "--home", new)[1]
    assert "it cannot run here afterwards: the topic `bids` of `bids` cannot be read" in said
    assert definitions(new) == ["bids", "hot", "items", "told"]


def test_a_home_without_sql_goes_back_to_no_definitions(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.home.put_table("plain", pa.table({"i": [1]}))
        one.home.checkpoint("one")
        one.say("CREATE TABLE items (id BIGINT)")
    restore(tmp_path / "home")
    assert definitions(tmp_path / "home") == []
    with opened(tmp_path / "home") as one:
        assert one.home.store.tables().keys() == {"plain"}


def test_a_checkpoint_of_an_earlier_version_leaves_definitions_alone(home: Path) -> None:
    folder = home / "checkpoints" / "one"
    manifest = checkpoint.read(folder)
    for name in ("manifest.json", "catalog.json"):
        (folder / name).unlink()
    checkpoint._seal(folder, replace(manifest, files={}))
    with opened(home) as one:
        one.say("CREATE VIEW later AS SELECT price FROM bids")
    assert "definitions stay as they are" in said_by("checkpoint", "restore", "one", "--home", home)[1]
    restore(home)
    assert definitions(home) == ["bids", "hot", "items", "later", "told"]


def test_a_restore_holds_what_its_flows_go_on_with(home: Path) -> None:
    restore(home)
    assert said_by("checkpoint", "drop", "one", "--home", home)[0] == 0
    with Home(home) as owner:
        assert owner.log.topic("bids").holds() == {"bids.bids": {0: 3}}


@pytest.mark.parametrize("step", ["noted", "kept store.duckdb"])
def test_a_restore_that_fails_while_it_moves_files_is_finished_by_the_next_start(home: Path, step: str) -> None:
    def fails(now: str) -> None:
        if now == step:
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        restore(home, failpoint=fails)
    with Home(home) as owner:
        row = owner.store.last("bids")
        assert row is not None and row.progress["offsets"] == {"bids": {"0": 3}}
    assert not [*(home / "repair").glob("*/swap.json")]
    assert definitions(home) == ["bids", "hot", "items", "told"]


def test_what_a_killed_save_or_drop_left_is_removed_by_the_next_start(home: Path) -> None:
    for left in (".two.links", ".two.new", ".three.gone"):
        shutil.copytree(home / "flows", home / "checkpoints" / left)
    with Home(home):
        pass
    assert [f.name for f in (home / "checkpoints").iterdir()] == ["one"]
