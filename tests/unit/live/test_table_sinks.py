"""CREATE SINK ... INTO TABLE: a stored table follows a query, each epoch once, whatever dies on the way. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream import paths
from millstream.errors import (
    DefinitionError,
    MillstreamError,
    RecordRefused,
    SchemaError,
    Unsupported,
)
from millstream.runtime.epoch import stored_tables
from millstream.store.duckdb import DuckStore
from millstream.testing.script import STEPS, Crash
from tests.sql.engine import QueryEngine
from tests.unit.live.world import Spoken, opened

SOURCE = "CREATE SOURCE bids (auction BIGINT, price BIGINT) FROM LOG('bids')"
TOTALS = "CREATE TABLE totals (auction BIGINT PRIMARY KEY, n INT NOT NULL, note STRING)"
KEPT = "CREATE SINK kept INTO TABLE totals (auction, n) AS SELECT auction, count(*) AS n FROM bids GROUP BY auction"
ALL = "CREATE TABLE seen (auction BIGINT, price BIGINT)"
ADDED = "CREATE SINK added INTO TABLE seen AS SELECT auction, price FROM bids WHERE price > 1"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Spoken]:
    with opened(tmp_path) as spoken:
        yield spoken


def flow(spoken: Spoken, sink: str) -> str:
    return str(spoken.live.flow_of(sink))


def kept(spoken: Spoken) -> dict[int, tuple[int, Any]]:
    return {r["auction"]: (r["n"], r["note"]) for r in spoken.rows("SELECT * FROM totals")}


def test_rows_are_upserted_and_deleted_by_the_key(world: Spoken) -> None:
    world.say(
        "CREATE TABLE parts (id BIGINT, k BIGINT)", TOTALS,
        "CREATE SINK kept INTO TABLE totals (auction, n) AS SELECT k, count(*) AS n FROM parts GROUP BY k",
        "INSERT INTO totals VALUES (9, 9, 'mine')",
        "INSERT INTO parts VALUES (1, 1), (2, 1), (3, 2)",
    )  # fmt: skip
    world.perform("kept")
    assert kept(world) == {9: (9, "mine"), 1: (2, None), 2: (1, None)}
    world.say("DELETE FROM parts WHERE k = 2", "UPDATE totals SET note = 'seen' WHERE auction = 1")
    world.perform("kept")
    assert kept(world) == {9: (9, "mine"), 1: (2, "seen")}, "others change the table, too; what did not change stays"
    world.say("INSERT INTO parts VALUES (4, 1)")
    world.perform("kept")
    assert kept(world) == {9: (9, "mine"), 1: (3, None)}
    assert "the table totals" in str(world.rows("SHOW SINKS"))
    assert "upserted by auction" in world.say("EXPLAIN kept").text


def test_rows_that_only_come_are_appended_and_views_read_the_table(world: Spoken) -> None:
    world.say(SOURCE, ALL, ADDED, "CREATE VIEW dear AS SELECT auction, max(price) AS p FROM seen GROUP BY auction")
    world.say("INSERT INTO bids VALUES (1, 5), (1, 5), (2, 0)")
    world.perform(flow(world, "added"))
    world.say("INSERT INTO seen VALUES (7, 7)", "INSERT INTO bids VALUES (2, 8)")
    world.perform(flow(world, "added"))
    rows = sorted((r["auction"], r["price"]) for r in world.rows("SELECT * FROM seen"))
    assert rows == [(1, 5), (1, 5), (2, 8), (7, 7)]
    world.perform("dear")
    assert {r["auction"]: r["p"] for r in world.rows("SELECT * FROM dear")} == {1: 5, 2: 8, 7: 7}


def test_a_sink_without_a_query_is_fed_by_insert(world: Spoken) -> None:
    world.say(SOURCE, ALL, "CREATE SINK later INTO TABLE seen", "INSERT INTO later SELECT auction, price FROM bids")
    world.say("INSERT INTO bids VALUES (4, 5)")
    world.perform(flow(world, "later"))
    assert world.rows("SELECT * FROM seen") == [{"auction": 4, "price": 5}]


def _killed(path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs, the second of which dies at a step; then the home is opened again."""

    def die(*_: Any, **__: Any) -> None:
        raise Crash(step)

    with opened(path) as world:
        world.say(SOURCE, TOTALS, KEPT, ALL, ADDED, "INSERT INTO bids VALUES (1, 5), (2, 6)")
        name = flow(world, "kept")
        assert name == flow(world, "added")
        world.perform(name)
        world.say("INSERT INTO bids VALUES (1, 7), (3, 1)")
        dies = die if step not in STEPS else None
        loop = world.home.loop(
            world.live.planned(name), failpoint=lambda at: die() if at == step else None, engine=QueryEngine
        )
        with monkeypatch.context() as patch:
            if step == "file":
                patch.setattr(stored_tables, "write_durably", dies)
            elif step == "store":
                patch.setattr(DuckStore, "put_table", dies)
            elif step == "stored":
                put = DuckStore.put_table
                patch.setattr(DuckStore, "put_table", lambda *a, **k: (put(*a, **k), die()))
            elif step == "name":
                real = paths.rename
                patch.setattr(paths, "rename", lambda a, b: die() if str(b).endswith("2.arrow") else real(a, b))
            with pytest.raises(Crash):
                while loop.step() is not None:
                    pass
        loop.abandon()


@pytest.mark.parametrize("step", [*STEPS[2:6], "file", "store", "stored", "name"])
def test_a_crash_at_any_step_takes_each_epoch_once(tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _killed(tmp_path, step, monkeypatch)
    with opened(tmp_path) as world:
        world.say("INSERT INTO seen VALUES (8, 8)")
        world.perform(flow(world, "kept"))
        assert kept(world) == {1: (2, None), 2: (1, None), 3: (1, None)}
        rows = sorted((r["auction"], r["price"]) for r in world.rows("SELECT * FROM seen"))
        assert rows == [(1, 5), (1, 7), (2, 6), (8, 8)]


def test_an_epoch_that_is_given_again_does_not_undo_what_others_did(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.say(SOURCE, TOTALS, KEPT, "INSERT INTO bids VALUES (1, 5)")
        name = flow(world, "kept")
        loop = world.home.loop(world.live.planned(name), failpoint=_at("before close"), engine=QueryEngine)
        with pytest.raises(Crash):
            loop.step()
        loop.abandon()
        world.say("UPDATE totals SET note = 'mine'")
        for path in (tmp_path / "flows").glob("**/out/*.done"):  # as if it had died before it noted the delivery
            path.rename(path.with_suffix(".arrow"))
        world.perform(name)
        assert kept(world) == {1: (1, "mine")}


def _at(step: str) -> Any:
    def fail(at: str) -> None:
        if at == step:
            raise Crash(step)

    return fail


@pytest.mark.parametrize(
    ("table", "query", "message"),
    [
        ("n TINYINT", "SELECT price AS n FROM bids", "a value of `n` cannot become TINYINT"),
        ("n BIGINT NOT NULL", "SELECT nullif(price, 300) AS n FROM bids", "NULL in `n`, which is NOT NULL"),
        ("n BIGINT PRIMARY KEY", "SELECT nullif(price, 300) AS n FROM bids", "NULL in `n`, which is its key"),
    ],
)
def test_a_value_that_does_not_fit_stops_the_flow(world: Spoken, table: str, query: str, message: str) -> None:
    world.say(SOURCE, f"CREATE TABLE t ({table})", f"CREATE SINK s INTO TABLE t AS {query}")
    world.say("INSERT INTO bids VALUES (1, 300)")
    with pytest.raises(RecordRefused, match=message) as error:
        world.perform(flow(world, "s"))
    assert "DROP SINK s" in (error.value.hint or "")
    assert world.rows("SELECT * FROM t") == []


def test_two_rows_of_one_key_are_refused(world: Spoken) -> None:
    world.say("CREATE TABLE parts (id BIGINT, k BIGINT)", "CREATE TABLE t (k BIGINT PRIMARY KEY)")
    world.say("CREATE SINK s INTO TABLE t AS SELECT k FROM parts", "INSERT INTO parts VALUES (1, 5), (2, 5)")
    with pytest.raises(RecordRefused, match="two rows for the key of `t`: k = 5"):
        world.perform("s")


def test_two_rows_of_one_key_are_refused_in_whichever_epoch_they_come(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.say("CREATE TABLE parts (id BIGINT, k BIGINT, v STRING)")
        world.say("CREATE TABLE latest (k BIGINT PRIMARY KEY, v STRING)")
        world.say("CREATE SINK s INTO TABLE latest AS SELECT k, v FROM parts", "INSERT INTO parts VALUES (1, 1, 'a')")
        world.perform("s")
        world.say("UPDATE parts SET v = 'c'")
        world.perform("s")
        world.say("DELETE FROM parts", "INSERT INTO parts VALUES (3, 1, 'd')")
        world.perform("s")
        assert world.rows("SELECT * FROM latest") == [{"k": 1, "v": "d"}], "one row takes the place of another"
    with opened(tmp_path) as world:  # the keys are kept
        world.say("INSERT INTO parts VALUES (2, 1, 'b')")
        for _ in range(2):
            with pytest.raises(RecordRefused, match="two rows for the key of `latest`: k = 1"):
                world.perform("s")
        assert world.rows("SELECT * FROM latest") == [{"k": 1, "v": "d"}]


def test_a_key_that_went_can_come_again(world: Spoken) -> None:
    world.say("CREATE TABLE parts (k BIGINT, v STRING)", "CREATE TABLE latest (k BIGINT PRIMARY KEY, v STRING)")
    world.say("CREATE SINK s INTO TABLE latest AS SELECT k, v FROM parts")
    for said, rows in {
        "INSERT INTO parts VALUES (1, 'a'), (2, 'b')": [(1, "a"), (2, "b")],
        "DELETE FROM parts WHERE k = 1": [(2, "b")],
        "INSERT INTO parts VALUES (1, 'c')": [(1, "c"), (2, "b")],
        "UPDATE parts SET k = 3 - k": [(1, "b"), (2, "c")],
        "DELETE FROM parts": [],
    }.items():
        world.say(said)
        world.perform("s")
        assert sorted((r["k"], r["v"]) for r in world.rows("SELECT * FROM latest")) == rows, said


def test_keys_of_homes_that_kept_none(world: Spoken) -> None:
    world.say("CREATE TABLE parts (k BIGINT, v STRING)", "CREATE TABLE latest (k BIGINT PRIMARY KEY, v STRING)")
    world.say("CREATE SINK s INTO TABLE latest AS SELECT k, v FROM parts")
    world.say("INSERT INTO parts VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    world.perform("s")
    with world.home.store._transaction() as cursor:
        cursor.execute("DELETE FROM millstream.written")
    world.say("UPDATE latest SET v = 'other' WHERE k = 2", "UPDATE parts SET v = 'd' WHERE k = 3")
    world.say("DELETE FROM parts WHERE k < 3")
    world.perform("s")
    rows = sorted((r["k"], r["v"]) for r in world.rows("SELECT * FROM latest"))
    assert rows == [(2, "other"), (3, "d")], "a row that is not the retracted one stays"


REFUSED: dict[str, tuple[type[Exception], str]] = {
    "seen AS SELECT auction, count(*) AS n FROM bids GROUP BY auction": (Unsupported, "has no PRIMARY KEY"),
    "seen AS SELECT auction FROM bids": (SchemaError, "1 values for 2 columns"),
    "totals (auction) AS SELECT auction FROM bids": (DefinitionError, "has no value for `n` of `totals`"),
    "seen (auction, auction) AS SELECT 1 AS a, 2 AS b": (DefinitionError, "column twice"),
    "seen (auction, colour) AS SELECT 1 AS a, 2 AS b": (SchemaError, "colour"),
    "bids AS SELECT auction, price FROM bids": (DefinitionError, "`bids` is a source"),
    "nowhere AS SELECT auction FROM bids": (MillstreamError, "there is no table `nowhere`"),
    "totals (auction, n) AS SELECT auction, n + 1 AS n FROM totals": (
        DefinitionError,
        "would feed itself: it writes to the table `totals` and reads `totals`",
    ),
    "other AS SELECT auction, n FROM fed": (DefinitionError, "would feed itself: it writes to the table `other`"),
}


def test_what_is_refused(world: Spoken) -> None:
    world.say(SOURCE, TOTALS, ALL, "CREATE TABLE other (auction BIGINT PRIMARY KEY, n BIGINT)")
    world.say("CREATE SINK kept INTO TABLE totals (auction, n) AS SELECT auction, n FROM other")
    world.say("CREATE VIEW fed AS SELECT auction, n FROM totals")
    for statement, (kind, message) in REFUSED.items():
        with pytest.raises(kind, match=message):
            world.say(f"CREATE SINK s INTO TABLE {statement}")


def test_a_table_is_not_dropped_while_a_sink_writes_to_it(world: Spoken) -> None:
    world.say(SOURCE, TOTALS, KEPT)
    with pytest.raises(MillstreamError, match="kept"):
        world.say("DROP TABLE totals")
    world.say("DROP SINK kept", "DROP TABLE totals")
