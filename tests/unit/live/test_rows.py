"""INSERT, UPDATE and DELETE on stored tables and topics, and questions about what is there; without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import (
    DefinitionError,
    MillstreamError,
    QueryError,
    RecordRefused,
    SchemaError,
    StatementRefused,
    UnknownName,
    Unsupported,
    ViewNotFound,
)
from tests.unit.live.world import BIDS, HOT, ITEMS, Spoken, opened

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Spoken]:
    """A home with a source, a view and a table of two items."""
    yield from _shop(tmp_path)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoken]:
    """The same, for tests that leave it as it was."""
    yield from _shop(tmp_path_factory.mktemp("shop"))


def _shop(path: Path) -> Iterator[Spoken]:
    with opened(path / "home") as one:
        one.say(BIDS, HOT, ITEMS)
        one.say(
            "INSERT INTO items VALUES (1, 'violin', 10.5, array('old', NULL), TIMESTAMP '2026-01-01 12:00:00'), "
            "(2, NULL, NULL, NULL, NULL)"
        )
        yield one


def items(shop: Spoken, columns: str = "id, name, price") -> list[tuple[Any, ...]]:
    return [tuple(r.values()) for r in shop.rows(f"SELECT {columns} FROM items ORDER BY id")]


def test_rows_are_inserted_with_their_types(shop: Spoken) -> None:
    assert items(shop, "*") == [
        (1, "violin", Decimal("10.50"), ["old", None], NOON),
        (2, None, None, None, None),
    ]
    assert shop.rows("SHOW TABLES")[0]["rows"] == 2


def test_columns_that_are_left_out_are_null(shop: Spoken) -> None:
    assert shop.said("INSERT INTO items (name, id) VALUES ('clock', 3)") == "inserted 1 row"
    assert items(shop)[2] == (3, "clock", None)


def test_values_are_computed(shop: Spoken) -> None:
    shop.say("INSERT INTO items (id, name, price) VALUES (1 + 2, upper(concat('a', 'b')), 7.25)")
    assert items(shop)[2] == (3, "AB", Decimal("7.25"))


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("'it''s'", "it's"),
        ("'it\\'s'", "it's"),
        ('"a \\" b"', 'a " b'),
        ("'a;b -- c /* d */'", "a;b -- c /* d */"),
        ("'\\\\'", "\\"),
        ("'$x {y} ? :z'", "$x {y} ? :z"),
        ("'\u00e9\U0001f600'", "\u00e9\U0001f600"),
        ("'); DROP TABLE items; --'", "); DROP TABLE items; --"),
        ("''''", "'"),
        ("''", ""),
        ("'a' /* said */ -- and more\n", "a"),
    ],
)
def test_a_text_is_kept_as_it_was_meant(unchanged: Spoken, written: str, kept: str) -> None:
    shop = unchanged
    shop.say(f"INSERT INTO items (id, name) VALUES (3, {written})")
    assert items(shop)[2][1] == kept
    shop.say(f"UPDATE items SET name = {written} WHERE id = 1", f"DELETE FROM items WHERE id = 3 AND name = {written}")
    assert [(i, n) for i, n, _ in items(shop)] == [(1, kept), (2, None)]
    shop.say("UPDATE items SET name = 'violin' WHERE id = 1")


def test_a_key_is_there_once(shop: Spoken) -> None:
    with pytest.raises(RecordRefused, match="two rows with id = 1"):
        shop.say("INSERT INTO items (id) VALUES (1)")
    with pytest.raises(RecordRefused, match="two rows with id = 7"):
        shop.say("INSERT INTO items (id) VALUES (7), (7)")
    with pytest.raises(RecordRefused, match="NULL in the key `id`"):
        shop.say("INSERT INTO items (name) VALUES ('x')")
    with pytest.raises(RecordRefused, match="two rows with id = 5"):
        shop.say("UPDATE items SET id = 5")
    assert len(items(shop)) == 2


def test_a_key_of_two_columns(shop: Spoken) -> None:
    shop.say("CREATE TABLE pairs (a INT, b STRING, v INT, PRIMARY KEY (a, b))")
    shop.say("INSERT INTO pairs VALUES (1, 'x', 1), (1, 'y', 2), (2, 'x', 3)")
    with pytest.raises(RecordRefused, match="a = 1, b = x"):
        shop.say("INSERT INTO pairs VALUES (1, 'x', 9)")


def test_a_table_without_a_key_takes_rows_twice(shop: Spoken) -> None:
    shop.say(
        "CREATE TABLE notes (said STRING)", "INSERT INTO notes VALUES ('a'), ('a')", "INSERT INTO notes VALUES ('a')"
    )
    assert len(shop.rows("SELECT * FROM notes")) == 3
    assert shop.said("DELETE FROM notes WHERE said = 'a'") == "deleted 3 rows"


@pytest.mark.parametrize(
    ("statement", "error", "match"),
    [
        ("INSERT INTO items VALUES (1)", SchemaError, "row 1 has 1 values for 5 columns"),
        ("INSERT INTO items (id, nothing) VALUES (1, 2)", SchemaError, "nothing"),
        ("INSERT INTO items (id, ID) VALUES (1, 2)", SchemaError, "a column is named twice"),
        ("INSERT INTO items (id, name) VALUES (3, name)", SchemaError, "`name` in VALUES"),
        ("INSERT INTO items (id) VALUES ('many')", MillstreamError, None),
        ("INSERT INTO items (id, name) SELECT auction FROM hot", MillstreamError, None),
        ("INSERT INTO hot VALUES (1, 2)", DefinitionError, "`hot` is a view"),
        ("INSERT INTO nothing VALUES (1)", DefinitionError, "no table, topic or sink `nothing`"),
        ("UPDATE items SET nothing = 1", SchemaError, "nothing"),
        ("UPDATE items SET price = 'much'", MillstreamError, None),
        ("UPDATE items SET price = 1 WHERE nothing = 1", MillstreamError, None),
        ("UPDATE hot SET n = 1", StatementRefused, "its rows follow from its definition"),
        ("DELETE FROM bids", StatementRefused, "`bids` is a source"),
        ("DELETE FROM nothing", DefinitionError, "no table `nothing`"),
        ("DELETE FROM items LIMIT 1", Unsupported, "no more"),
        ("DELETE FROM items WHERE id IN (SELECT 1)", Unsupported, "only columns of the table itself"),
        ("SELECT * FROM bids", QueryError, "`bids` is a source, whose records keep arriving"),
        ("SELECT * FROM nothing", ViewNotFound, "`nothing`"),
        ("SELECT * FROM state('nothing')", MillstreamError, "nothing"),
        ("SELECT nothing FROM items", QueryError, None),
        ("SELECT 1 / 0 FROM items WHERE id / 0 > 1 AND raise_error('x')", StatementRefused, "raise_error"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    unchanged: Spoken, statement: str, error: type[Exception], match: str | None
) -> None:
    before = items(unchanged, "*")
    with pytest.raises(error, match=match):
        unchanged.say(statement)
    assert items(unchanged, "*") == before


def test_update_changes_the_rows_that_are_meant(shop: Spoken) -> None:
    assert shop.said("UPDATE items SET price = price * 2, name = concat(name, '!') WHERE id = 1") == "updated 1 row"
    assert items(shop) == [(1, "violin!", Decimal("21.00")), (2, None, None)]
    assert shop.said("UPDATE items SET price = 0 WHERE price > 1000") == "updated 0 rows"
    assert shop.said("UPDATE items SET name = 'x'") == "updated 2 rows"
    assert [n for _, n, _ in items(shop)] == ["x", "x"]


def test_update_sees_the_old_values_on_all_right_sides(shop: Spoken) -> None:
    shop.say("CREATE TABLE pairs (a INT, b INT)", "INSERT INTO pairs VALUES (1, 2)", "UPDATE pairs SET a = b, b = a")
    assert shop.rows("SELECT a, b FROM pairs") == [{"a": 2, "b": 1}]


def test_update_to_null_and_from_null(shop: Spoken) -> None:
    shop.say("UPDATE items SET name = NULL WHERE id = 1", "UPDATE items SET name = 'new' WHERE name IS NULL AND id = 2")
    assert items(shop) == [(1, None, Decimal("10.50")), (2, "new", None)]


def test_a_condition_that_is_null_is_not_true(shop: Spoken) -> None:
    assert shop.said("DELETE FROM items WHERE price < 100") == "deleted 1 row"
    assert items(shop) == [(2, None, None)]
    assert shop.said("DELETE FROM items WHERE NOT price < 100") == "deleted 0 rows"
    assert shop.said("DELETE FROM items") == "deleted 1 row"
    assert items(shop) == []


def test_columns_may_be_named_with_their_table(shop: Spoken) -> None:
    shop.say("UPDATE items AS i SET name = concat(i.name, '?') WHERE i.id = 1", "DELETE FROM items WHERE items.id = 2")
    assert items(shop) == [(1, "violin?", Decimal("10.50"))]


def test_rows_of_a_question_are_inserted(shop: Spoken) -> None:
    assert shop.said("INSERT INTO items (id, name) SELECT id + 10, name FROM items") == "inserted 2 rows"
    assert [(i, n) for i, n, _ in items(shop)] == [(1, "violin"), (2, None), (11, "violin"), (12, None)]


def test_a_table_is_there_when_the_home_is_opened_again(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(ITEMS, "INSERT INTO items (id, name) VALUES (1, 'a')")
    with opened(tmp_path / "home") as again:
        again.say("INSERT INTO items (id, name) VALUES (2, 'b')")
        assert items(again, "id, name") == [(1, "a"), (2, "b")]
        assert again.home.tables.newest()["items"] >= 1


def test_records_are_appended_to_the_topic_of_a_source(shop: Spoken) -> None:
    shop.say("INSERT INTO bids (auction, ts) VALUES (1, TIMESTAMP '2026-01-01 12:00:00')")
    shop.say("INSERT INTO bids SELECT id, id * 2, TIMESTAMP '2026-01-01 12:00:01' FROM items")
    topic = shop.home.topic("bids")
    found = topic.read(0, 0, topic.end()[0]).select(["auction", "price"]).to_pylist()
    assert [(r["auction"], r["price"]) for r in found] == [(1, None), (1, 2), (2, 4)]
    shop.perform("bids")
    assert shop.rows("SELECT auction, n FROM hot ORDER BY auction") == [{"auction": 1, "n": 2}, {"auction": 2, "n": 1}]


def test_records_are_appended_to_a_topic_that_no_source_reads(shop: Spoken) -> None:
    shop.home.topic("plain", schema="a BIGINT, b STRING")
    assert shop.said("INSERT INTO plain VALUES (1, 'x'), (2, NULL)") == "inserted 2 rows"
    assert sum(shop.home.topic("plain").end().values()) == 2


def test_questions_about_late_records_errors_and_state(shop: Spoken) -> None:
    shop.say(
        "CREATE VIEW per_minute AS SELECT window_start, window_end, count(*) AS n FROM TUMBLE(bids, ts, '1 minute') "
        "GROUP BY window_start, window_end"
    )
    flow = shop.live.flow_of("per_minute")
    shop.say("INSERT INTO bids VALUES (1, 5, TIMESTAMP '2026-01-01 12:05:00')")
    shop.perform(flow)
    shop.say("INSERT INTO bids VALUES (1, 5, TIMESTAMP '2026-01-01 12:01:00'), (1, 5, TIMESTAMP '2999-01-01 00:00:00')")
    shop.perform(flow)
    assert shop.rows("SELECT n FROM per_minute") == [{"n": 1}]
    assert len(shop.rows("SELECT * FROM per_minute$late")) == 1
    state = shop.rows("SELECT * FROM state('per_minute')")
    assert [r["rows"] for r in state] == [1]
    with pytest.raises(MillstreamError, match="keeps no state"):
        shop.say("CREATE VIEW prices WITH (flow = 'own') AS SELECT price FROM bids", "SELECT * FROM state('prices')")


def test_values_are_a_question_too(shop: Spoken) -> None:
    result = shop.say("VALUES (1, 'a'), (2, 'b')").result
    assert result is not None
    assert [tuple(r.values()) for r in result.to_dicts()] == [(1, "a"), (2, "b")]


def test_a_view_over_tables_alone_is_listed(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as world:
        world.say("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)", "CREATE VIEW v AS SELECT a FROM t")
        world.perform("v")
        assert [(r["view"], r["rows"], r["watermark"]) for r in world.rows("SHOW VIEWS")] == [("v", 1, None)]
        assert [(r["flow"], r["epoch"], r["watermark"]) for r in world.rows("SHOW FLOWS")] == [("v", 1, None)]
        assert world.home.views()[0]["watermark"] is None


def test_cast_fails_and_try_cast_gives_null_in_questions_and_inserts(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as world:
        world.say("CREATE TABLE t (a INT, s STRING)", "INSERT INTO t VALUES (1, 'x')")
        for refused in (
            "SELECT CAST(s AS INT) FROM t",
            "SELECT s::INT FROM t",
            "INSERT INTO t VALUES (CAST('x' AS INT), 's')",
        ):
            with pytest.raises(MillstreamError):
                world.say(refused)
        world.say("INSERT INTO t VALUES (try_cast('x' AS INT), 'y')")
        assert world.rows("SELECT a, try_cast(s AS INT) AS n FROM t ORDER BY s") == [
            {"a": 1, "n": None},
            {"a": None, "n": None},
        ]


def test_a_question_is_answered_whole_or_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as world:
        world.say("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1), (2)")
        assert len(world.rows("SELECT a FROM t ORDER BY a LIMIT 50 PERCENT")) == 1
        for refused in (
            "SELECT a FROM t FOR UPDATE",
            "SELECT percentile(a, 0.5, 3) FROM t",
            "SELECT posexplode(array(a)) FROM t",
        ):
            with pytest.raises(MillstreamError):
                world.say(refused)


def test_a_function_that_only_views_have_is_named(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as world:
        world.say("CREATE TABLE t (a BIGINT)", "INSERT INTO t VALUES (1)")
        with pytest.raises(MillstreamError, match="the function `conv` cannot be used in a query"):
            world.say("SELECT conv(a, 10, 2) FROM t")


def test_a_missing_name_is_not_said_to_be_the_view_that_is_being_made(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as world, pytest.raises(UnknownName) as told:
        world.say("CREATE VIEW items2 AS SELECT * FROM items")
    assert told.value.detail == "there are: none yet" and told.value.hint is None
