"""Stored tables outlive a lost or older store, and a drop that dies is done whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.errors import DiskFull, HomeDamaged
from millstream.home import Home
from millstream.runtime.epoch.stored_tables import Tables
from millstream.runtime.recovery import repair
from tests.unit.live.world import opened

from .recovery_homes import said_by

ONE, TWO = pa.table({"id": [1]}), pa.table({"id": [1, 2]})


def rows(home: Path, table: str) -> list[int]:
    with opened(home) as one:
        return [r["id"] for r in one.rows(f"SELECT id FROM {table} ORDER BY id")]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with two versions of a table, one table that is newer, and `store.old`, from before."""
    path = tmp_path / "home"
    with opened(path) as one:
        one.home.put_table("cities", ONE)
    shutil.copyfile(path / "store.duckdb", tmp_path / "store.old")
    with opened(path) as one:
        one.home.put_table("cities", TWO)
        one.say("CREATE TABLE items (id BIGINT)", "INSERT INTO items VALUES (7)")
    return path


@pytest.mark.parametrize("harm", ["missing", "older"])
def test_a_lost_store_loses_no_table(home: Path, harm: str) -> None:
    store = home / "store.duckdb"
    if harm == "missing":
        store.unlink()
    else:
        shutil.copyfile(home.parent / "store.old", store)
    assert repair.look(home)
    with pytest.raises(HomeDamaged), opened(home) as one:
        one.home.put_table("cities", ONE)
    code, said = said_by("repair", "--yes", "--home", home)
    assert code == 0, said
    assert rows(home, "cities") == [1, 2] and rows(home, "items") == [7]
    assert repair.look(home) == []


@pytest.mark.parametrize("forgotten", [False, True], ids=["before the store forgot it", "after the store forgot it"])
def test_a_drop_that_was_cut_off_is_done_whole_or_not_at_all(home: Path, forgotten: bool) -> None:
    class Dies(BaseException):
        """The process ends here."""

    with Home(home) as owner:
        owner.open_home.on_store_open = lambda: None
        store = owner.store

        def commit() -> None:
            if forgotten:
                store.forget_table("cities")
            shutil.copytree(home / "tables", home.parent / "left")  # as it is at this moment
            raise Dies

        with pytest.raises(Dies):
            owner.tables.drop("cities", commit)
        assert (home / "tables" / "cities").exists(), "a drop that the store refuses changes nothing"
    shutil.rmtree(home / "tables")
    shutil.move(home.parent / "left", home / "tables")
    assert repair.look(home) == []
    if forgotten:
        with opened(home) as one:
            assert set(one.home.store.tables()) == {"items"}
    else:
        assert rows(home, "cities") == [1, 2]
    assert {f.name for f in (home / "tables").iterdir()} == ({"items"} if forgotten else {"items", "cities"})


def test_leftovers_of_a_table_that_an_earlier_version_dropped_by_half_are_taken_away(home: Path) -> None:
    with Home(home) as owner:
        owner.open_home.on_store_open = lambda: None
        owner.store.forget_table("cities")
    (home / "tables" / "cities" / "000002.arrow").unlink()
    (finding,) = repair.look(home)
    assert "the table `cities` was dropped, but files of it are left" in finding.problem
    assert said_by("repair", "--yes", "--home", home)[0] == 0
    assert not (home / "tables" / "cities").exists() and rows(home, "items") == [7]
    assert repair.look(home) == []


def test_rows_that_are_stored_are_not_reported_as_failed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Home(home) as owner:
        owner.open_home.on_store_open = lambda: None

        def full(*_: object) -> None:
            raise DiskFull("no space left")

        monkeypatch.setattr(owner.tables, "_note", full)
        owner.put_table("cities", ONE)  # a retry would store the rows twice
    assert rows(home, "cities") == [1]
    assert "000003.arrow" in Tables(home / "tables").known("cities"), "the next start noted its checksum"
    assert repair.look(home) == []
