"""Every part of a query counts: what one aggregate is, what EMIT holds for, and what no flow could compute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.errors import MillstreamError, Unsupported
from millstream.model.flow import Flow
from millstream.plan.planner import plan
from millstream.sql.bind.binder import Binder
from millstream.sql.parse import statement_parser
from millstream.sql.parse.script import split
from millstream.sql.parse.statement_values import CreateView
from millstream.sql.parse.text import Text
from tests.sql import kit
from tests.sql.live_tables import LiveTables
from tests.unit.live.world import Spoken, opened

VIEWS = {
    "lists": "SELECT k, array_agg(v ORDER BY t) AS a, array_agg(v ORDER BY t DESC) AS b, array_agg(v ORDER BY v) AS c, "
    "array_agg(v ORDER BY v DESC) AS d, count(*) AS n FROM r GROUP BY k",
    "nulls": "SELECT k, array_agg(t ORDER BY w NULLS FIRST, t) AS a, array_agg(t ORDER BY w NULLS LAST, t) AS b "
    "FROM r GROUP BY k",
    "texts": "SELECT k, string_agg(s, ',' ORDER BY t) AS a, string_agg(s, ',' ORDER BY t DESC) AS b, "
    "string_agg(s, ';' ORDER BY t) AS c, string_agg(DISTINCT s, ',' ORDER BY s) AS d, "
    "string_agg(s, ',' ORDER BY t) FILTER (WHERE v > 2) AS e FROM r GROUP BY k",
    "chosen": "SELECT k, percentile_cont(0.5) WITHIN GROUP (ORDER BY v) AS m FROM r GROUP BY k "
    "ORDER BY percentile_cont(0.0) WITHIN GROUP (ORDER BY v), k LIMIT 1",
    "first_group": "SELECT r.k FROM r GROUP BY r.k ORDER BY sum(r.v) DESC, r.k LIMIT 1",
    "first_alias": "SELECT r.k AS x, r.k + 1 AS y FROM r GROUP BY r.k ORDER BY max(r.s) = 'x', y - x, r.k + 1 LIMIT 1",
    "first_rows": "SELECT s, v AS order_by_1 FROM r ORDER BY (SELECT max(t) FROM r), t DESC LIMIT 2",
    "first_of_all": "SELECT *, v + 1 AS z FROM r ORDER BY (SELECT max(t) FROM r) - r.t, z LIMIT 2",
    "kept": "SELECT k, array_agg(v ORDER BY t) AS a FROM r GROUP BY k HAVING len(array_agg(v ORDER BY t DESC)) > 1",
    "ranks": "SELECT t, row_number() OVER (PARTITION BY k ORDER BY w NULLS FIRST, t) AS a, "
    "row_number() OVER (PARTITION BY k ORDER BY w NULLS LAST, t) AS b FROM r",
}


def test_aggregates_that_differ_in_their_order_are_two(tmp_path: Path) -> None:
    columns = "t BIGINT, k BIGINT, v BIGINT, w BIGINT, s STRING"
    views = {n: q.replace("len(", "size(") for n, q in VIEWS.items()}
    tables = LiveTables(tmp_path / "home", {"r": columns}, views)
    tables.views = VIEWS
    for change in (
        "INSERT INTO r VALUES (1, 1, 5, NULL, 'x'), (2, 1, 1, 4, 'y'), (3, 2, 9, 7, 'x'), (4, 1, 3, 2, 'x')",
        "UPDATE r SET v = 8, w = NULL WHERE t = 3",
        "DELETE FROM r WHERE t = 2; INSERT INTO r VALUES (7, 2, 0, 1, 'z'), (8, 2, 6, NULL, 'a')",
    ):
        tables.change(change)
        tables.tick()
        assert tables.differences() == {}
        if change.startswith("UPDATE"):
            tables.close()
            tables.open()
    tables.close()


PER_MINUTE = """CREATE VIEW per_minute AS SELECT window_start, window_end, auction, count(*) AS n
FROM TUMBLE(bids, ts, INTERVAL '1' MINUTE) GROUP BY window_start, window_end, auction"""
GROUPED = "SELECT window_end, count(*) AS c FROM per_minute GROUP BY window_end"
JOINED = """SELECT a.window_end, a.n, p.n AS m FROM (SELECT window_end, count(*) AS n
FROM TUMBLE(bids, ts, INTERVAL '1' MINUTE) GROUP BY window_start, window_end) AS a
JOIN per_minute AS p ON p.window_end = a.window_end"""
AS_CTE = """WITH a AS (SELECT window_end, count(*) AS n FROM TUMBLE(bids, ts, INTERVAL '1' MINUTE)
GROUP BY window_start, window_end), b AS (SELECT a.n FROM a JOIN items ON items.id = a.n) SELECT n FROM b"""


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (f"{GROUPED} EMIT EVERY INTERVAL '1' MINUTE", "EMIT after a GROUP BY without a window"),
        (f"{GROUPED} EMIT ON CLOSE ALLOWED LATENESS INTERVAL '1' MINUTE", "ALLOWED LATENESS after a GROUP BY"),
        (f"{GROUPED} DISCARDING", "DISCARDING after a GROUP BY without a window"),
        ("SELECT auction, count(*) AS c FROM hot GROUP BY auction EMIT ON CLOSE", "never become final"),
        (f"{JOINED} EMIT ON CLOSE", "EMIT would apply to one side of the join only"),
        (f"{JOINED} ALLOWED LATENESS INTERVAL '1' MINUTE", "ALLOWED LATENESS would apply to one side"),
        (f"{AS_CTE} EMIT ON CLOSE", "EMIT would apply to one side of the join only"),
    ],
)
def test_a_clause_that_would_hold_for_nothing_or_a_part_is_refused(query: str, said: str) -> None:
    with pytest.raises(Unsupported, match=said) as raised:
        kit.view_plan(query, kit.defined(PER_MINUTE, kit.world()))
    assert raised.value.hint and raised.value.origin is not None


def test_panes_of_groups_that_have_none_are_refused() -> None:
    with pytest.raises(Unsupported, match="panes after a GROUP BY without a window"):
        kit.defined(
            f"CREATE VIEW v WITH (panes = '1 day') AS {GROUPED}",
            kit.defined(PER_MINUTE, kit.world()),
        )


@pytest.mark.parametrize(
    ("query", "state"),
    [(f"{GROUPED} EMIT EVERY INTERVAL '1' MINUTE", "until window_end"), (f"{JOINED} EMIT ON CLOSE", "window closes")],
)
def test_a_definition_that_an_older_version_accepted_still_works(query: str, state: str) -> None:
    catalog = kit.defined(PER_MINUTE, kit.world())
    (piece,) = split(Text(f"CREATE VIEW v AS {query}"))
    entry = statement_parser.statement(piece, kept=True)
    assert isinstance(entry, CreateView)
    catalog.add(entry)
    flow = Flow("f")
    Binder(flow, catalog, kit.GENERATORS).view(entry)
    assert state in kit.told(plan(flow))


def test_what_the_hints_of_a_join_say_works() -> None:
    joined = kit.defined(f"{PER_MINUTE}; CREATE VIEW joined AS {JOINED}", kit.world())
    assert "appended, never changed" in kit.told(kit.view_plan("SELECT * FROM joined EMIT ON CLOSE", joined))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoken]:
    with opened(tmp_path_factory.mktemp("all") / "home") as found:
        found.say(kit.BIDS + kit.OTHERS, "CREATE SOURCE docs (page STRING, made TIMESTAMP) FROM LOG('docs')")
        yield found


def test_the_note_about_growing_state_promises_no_bound_without_a_watermark(world: Spoken) -> None:
    query = "SELECT window_end, count(*) AS n FROM TUMBLE(docs, made, INTERVAL '1' MINUTE) GROUP BY ALL"
    said = world.said(f"CREATE VIEW by_made AS {query.replace('ALL', 'window_start, window_end')}")
    assert "a window in GROUP BY bounds it" not in said
    assert "no source has one" in said
    said = world.said("CREATE VIEW per_channel AS SELECT channel, count(*) AS n FROM bids GROUP BY channel")
    assert "a window in GROUP BY bounds it, e.g. TUMBLE(ts, INTERVAL '1' HOUR)" in said


def test_localtimestamp_needs_no_brackets(world: Spoken) -> None:
    plans = [
        kit.view_plan(f"SELECT auction FROM bids WHERE ts > localtimestamp{b} - INTERVAL '1' HOUR").id
        for b in ("", "()")
    ]
    assert plans[0] == plans[1]
    for word in ("localtimestamp", "LOCALTIMESTAMP", "localtimestamp()", "current_timestamp", "current_date"):
        (row,) = world.rows(f"SELECT {word}")
        assert len(row) == 1
    assert world.rows("SELECT localtimestamp - localtimestamp() = INTERVAL '0' SECOND AS same") == [{"same": True}]
    assert kit.view_plan("SELECT `localtimestamp` AS x FROM (SELECT ts AS `localtimestamp` FROM bids)")


@pytest.mark.parametrize(
    ("statement", "parts"),
    [
        ("CREATE VIEW x AS SELECT auction FROM bids WHERE ts > CURRENT_TIME", ("no type TIME", "current_timestamp")),
        ("WITH x AS (SELECT 1 AS a) INSERT INTO items SELECT a, 'n', 1 FROM x", ("INSERT INTO t WITH x AS",)),
        (
            "WITH x AS (SELECT 1 AS a) MERGE INTO items USING x ON items.id = x.a WHEN MATCHED THEN DELETE",
            ("MERGE INTO t USING (SELECT ...) AS x",),
        ),
        ("WITH x AS (SELECT 1 AS a) UPDATE items SET name = 'a'", ("UPDATE t SET ... FROM (SELECT ...)",)),
        ("WITH x AS (SELECT 1 AS a) DELETE FROM items", ("DELETE FROM t USING (SELECT ...)",)),
        (
            "CREATE VIEW x AS SELECT h.auction, i.name FROM hot AS h JOIN items AS i ON h.auction = i.id",
            ("the stored table `items` cannot be looked up", "WITH (tables = 'live')"),
        ),
        ("CREATE VIEW x AS SELECT length(channel, 2) AS a FROM bids", ("too many", "length(text)")),
        ("CREATE VIEW x AS SELECT substring(channel) AS a FROM bids", ("too few", "substring(text, start")),
        ("CREATE VIEW x AS SELECT substring(channel, 1, 2, 3) AS a FROM bids", ("too many",)),
        ("CREATE VIEW x AS SELECT if(price > 1, 2) AS a FROM bids", ("too few", "if(condition, value, other)")),
        ("CREATE VIEW x AS SELECT round(price, 1, 2) AS a FROM bids", ("too many", "round(number")),
        ("CREATE VIEW x AS SELECT auction FROM bids WHERE price IS 5", ("IS compares with NULL", "IS NOT DISTINCT")),
        ("CREATE VIEW x AS SELECT auction FROM bids WHERE channel ? 'a'", ("operators ?", "get_json_object")),
        ("CREATE VIEW x AS SELECT channel::jsonb AS a FROM bids", ("no type JSONB", "get_json_object")),
        ("CREATE VIEW x AS SELECT try_cast(channel AS INET) AS a FROM bids", ("no type INET",)),
    ],
)
def test_a_mistake_is_found_when_it_is_written(world: Spoken, statement: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(MillstreamError) as raised:
        world.say(statement)
    said = str(raised.value)
    assert all(p in said for p in parts), said
    assert raised.value.origin is not None
    assert "enrich" not in said


def test_what_looks_like_these_mistakes_still_works() -> None:
    assert kit.view_plan(
        "SELECT CASE WHEN price > 1 THEN 2 END AS a, round(price, 1) AS b, length(channel) AS c, "
        "if(price > 1, 2, 3) AS d, substring(channel, 2) AS e, substring(channel FROM 2 FOR 1) AS f, "
        "price > 1 IS TRUE AS g, price IS NULL AS h, "
        "price IS UNKNOWN AS i, price IS DISTINCT FROM 5 AS j, channel::json AS k FROM bids"
    )
