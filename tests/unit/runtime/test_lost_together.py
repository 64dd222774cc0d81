"""Files that are lost together: a file and its copy, or a whole folder. What is left of the home names the loss, and a
repair puts back what is known elsewhere.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import HomeDamaged
from millstream.home import Home
from millstream.log.storage.files import encoded
from millstream.plan.planner import plan
from millstream.runtime.epoch.stored_tables import SUMS
from millstream.runtime.recovery import repair
from millstream.runtime.recovery.catalog_file import COPY, FILE
from tests.local import LocalEngine


def home_at(path: Path) -> Home:
    home = Home(path)
    home.open_home.on_store_open = lambda: None
    return home


def repaired(path: Path) -> list[str]:
    """What a repair finds and mends, until it finds nothing."""
    said: list[str] = []
    while found := repair.look(path):
        said += [f.problem for f in found]
        repair.mend(path, found)
    return said


@pytest.mark.parametrize("loss", ["deleted", "older"])
def test_a_catalog_lost_with_its_copy_is_put_back_from_the_store(tmp_path: Path, loss: str) -> None:
    path = tmp_path / "home"
    with home_at(path) as home:
        home.session(start=False)
        list(home.session(start=False).execute("CREATE TABLE a (id BIGINT PRIMARY KEY)"))
        for name in (FILE, COPY):
            shutil.copyfile(path / name, tmp_path / name)
        list(home.session(start=False).execute("CREATE TABLE b (id BIGINT PRIMARY KEY)"))
    for name in (FILE, COPY):
        (path / name).unlink()
        if loss == "older":
            shutil.copyfile(tmp_path / name, path / name)
    with home_at(path) as home, pytest.raises(HomeDamaged, match="catalog") as raised:
        home.session(start=False)
    assert "repair" in (raised.value.hint or "")
    assert repaired(path)
    with home_at(path) as home:
        assert sorted(home.session(start=False).deployment.definitions.entries) == ["a", "b"]


SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def counted(guarantee: str = "exactly_once") -> ms.Flow:
    flow = ms.Flow("counting", guarantee=guarantee)
    source = flow.source("bids", ms.log("bids"), schema="k BIGINT, v BIGINT")
    source.key_by("k").aggregate(n=ms.count()).sink("told", ms.log("told"))
    return flow


def run(path: Path, keys: list[int], guarantee: str = "exactly_once") -> list[dict[str, Any]]:
    """Append records, perform an epoch for each, and give what is in the topic of the sink then."""
    with home_at(path) as home:
        topic = home.topic("bids", schema=SCHEMA)
        loop = home.loop(plan(counted(guarantee)), engine=LocalEngine)
        for key in keys:
            topic.append([{"k": key, "v": 1}])
            while loop.step() is not None:
                pass
        loop.close()
        told = home.log.topic("told")
        return [{k: row[k] for k in ("k", "n")} for row in told.read(0, 0, told.end()[0]).to_pylist()]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("loss", "guarantee"),
    [
        ("deleted", "exactly_once"),
        ("older", "exactly_once"),
        ("another", "exactly_once"),
        ("older", "at_least_once"),
        ("deleted", "at_most_once"),
    ],
)
def test_a_topic_that_lacks_what_its_sink_has_written_is_named(tmp_path: Path, loss: str, guarantee: str) -> None:
    path = tmp_path / "home"
    run(path, [1, 2], guarantee)
    shutil.copytree(path / "log/told", tmp_path / "told")
    assert [r["k"] for r in run(path, [3, 4], guarantee)] == [1, 2, 3, 4]
    shutil.rmtree(path / "log/told")
    if loss == "older":
        shutil.copytree(tmp_path / "told", path / "log/told")
    if loss == "another":
        with home_at(path) as home:
            home.topic("told", schema=pa.schema([("op", pa.string()), *SCHEMA.remove(1), ("n", pa.int64())]))
            home.topic("told").append([{"op": "+I", "k": 9, "n": 9}] * 9)
    with pytest.raises(HomeDamaged, match="lacks changes that the sink `told`") as raised:
        run(path, [])
    assert "repair" in (raised.value.hint or "")
    assert len(repaired(path)) == 1
    before = {"deleted": [], "older": [1, 2], "another": [9] * 9}[loss]
    last = [4] if guarantee == "exactly_once" else []  # it is in the outbox
    assert [r["k"] for r in run(path, [5], guarantee)] == [*before, *last, 5]
    assert repair.look(path) == []


def test_what_the_last_epoch_delivered_is_delivered_again_if_the_topic_lacks_it(tmp_path: Path) -> None:
    path = tmp_path / "home"
    run(path, [1])
    shutil.copytree(path / "log/told", tmp_path / "told")
    run(path, [2])
    shutil.rmtree(path / "log/told")
    shutil.copytree(tmp_path / "told", path / "log/told")
    assert run(path, []) == [{"k": 1, "n": 1}, {"k": 2, "n": 1}]
    assert [r["n"] for r in run(path, [2])] == [1, 1, 1, 2]  # the last two are a -U and its +U


@pytest.mark.parametrize("how", ["swapped", "renamed", "copied"])
def test_folders_of_stored_tables_that_changed_places_go_back(tmp_path: Path, how: str) -> None:
    path, tables = tmp_path / "home", tmp_path / "home/tables"
    with home_at(path) as home:
        for name in ("a", "b"):
            home.put_table(name, [{"id": name}])
    if how == "copied":
        shutil.rmtree(tables / "b")
        shutil.copytree(tables / "a", tables / "b")
    else:
        (tables / "a").rename(tables / "c")
        if how == "swapped":
            (tables / "b").rename(tables / "a")
            (tables / "c").rename(tables / "b")
    with home_at(path) as home, pytest.raises(HomeDamaged, match=r"holds the table|does not have version"):
        home.store  # noqa: B018
    assert repaired(path)
    with home_at(path) as home:
        assert home.query("SELECT id FROM a").to_dicts() == [{"id": "a"}]
        assert {n: home.tables.rows(n, 1).to_pylist() for n in home.tables.newest()} == {
            name: [{"id": name}] for name in ("a", "b")
        }


def test_a_note_of_checksums_without_a_name_is_read(tmp_path: Path) -> None:
    path = tmp_path / "home"
    with home_at(path) as home:
        home.put_table("a", [{"id": 1}])
        sums = home.tables.known("a")
    (path / "tables/a" / SUMS).write_bytes(encoded(sums))  # as earlier versions wrote it
    assert repair.look(path) == []
    with home_at(path) as home:
        assert home.tables.known("a") == sums
        home.put_table("a", [{"id": 2}])
        assert home.query("SELECT id FROM a").to_dicts() == [{"id": 2}]
