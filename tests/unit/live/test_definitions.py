"""Definitions in a home: kept, found again, replaced, dropped, broken; and the flows that views are put into."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from millstream.errors import (
    DefinitionError,
    DiskFull,
    DuplicateName,
    HomeDamaged,
    HomeTooNew,
    LogInUse,
    StatementRefused,
    UnknownName,
    Unsupported,
)
from millstream.live import definitions
from millstream.live.definitions import COPY, FILE, Definition, Definitions, FlowNote
from millstream.live.session import Session
from millstream.state.durable import write_durably
from tests.unit.live.world import BIDS, HOT, ITEMS, opened


def test_definitions_are_there_when_the_home_is_opened_again(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        assert one.said(BIDS) == "created the source bids"
        assert one.said(HOT).startswith("created the view hot")
        one.say(ITEMS, "CREATE VIEW hotter AS SELECT * FROM hot WHERE n > 5")
    with opened(tmp_path / "home") as again:
        assert list(again.live.catalog.entries) == ["bids", "hot", "items", "hotter"]
        assert again.live.broken == {}
        assert [r["view"] for r in again.rows("SHOW VIEWS")] == ["hot", "hotter"]
        assert again.live.catalog.get("HOT").piece.sql == HOT


def test_a_definition_said_twice_is_there_already(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT)
        assert one.said(HOT) == "the view hot exists already"
        assert one.said("CREATE VIEW IF NOT EXISTS hot AS SELECT price FROM bids") == "the view hot exists already"
        with pytest.raises(DuplicateName, match="there is a view `hot` already"):
            one.say("CREATE VIEW hot AS SELECT price FROM bids")
        with pytest.raises(DefinitionError, match="`hot` is already the name of a view"):
            one.say("CREATE TABLE hot (a INT)")


def test_replacing_keeps_the_old_one_unless_the_new_one_works(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT)
        with pytest.raises(DefinitionError, match="no column `nothing`"):
            one.say("CREATE OR REPLACE VIEW hot AS SELECT nothing FROM bids")
        assert one.live.catalog.get("hot").piece.sql == HOT
        one.say("CREATE OR REPLACE VIEW hot AS SELECT auction, max(price) AS top FROM bids GROUP BY auction")
        assert [r["column"] for r in one.rows("DESCRIBE hot")] == ["auction", "top"]
    with opened(tmp_path / "home") as again:
        assert "max(price)" in again.live.catalog.get("hot").piece.sql


def test_what_others_depend_on_is_neither_replaced_nor_dropped(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT, "CREATE VIEW hotter AS SELECT * FROM hot WHERE n > 5")
        with pytest.raises(DefinitionError, match="`hot` cannot be replaced: view `hotter` depends on it"):
            one.say("CREATE OR REPLACE VIEW hot AS SELECT auction FROM bids")
        with pytest.raises(DefinitionError, match="`bids` cannot be dropped: view `hot`, view `hotter` depend on it"):
            one.say("DROP SOURCE bids")
        assert len(one.live.catalog.entries) == 3


def test_cascade_drops_all_that_depends(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, ITEMS, HOT, "CREATE VIEW hotter AS SELECT * FROM hot WHERE n > 5")
        one.say("CREATE SINK told FROM hotter INTO LOG('told')", "CREATE VIEW priced AS SELECT price FROM bids")
        assert one.said("DROP VIEW hot CASCADE") == "dropped the view hot, and hotter, told"
        assert list(one.live.catalog.entries) == ["bids", "items", "priced"]
        assert one.said("DROP SOURCE bids CASCADE") == "dropped the source bids, and priced"
        assert one.live.flows() == []
        assert one.said("DROP TABLE items") == "dropped the table items"
        assert one.rows("SHOW TABLES") == []
    with opened(tmp_path / "home") as again:
        assert again.live.catalog.entries == {}


def test_a_query_that_hides_a_source_behind_a_cte_depends_on_it(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, "CREATE VIEW dear AS WITH bids AS (SELECT auction FROM bids) SELECT auction FROM bids")
        with pytest.raises(DefinitionError, match="view `dear` depends on it"):
            one.say("DROP SOURCE bids")


def test_dropping_what_is_not_there(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS)
        assert one.said("DROP VIEW IF EXISTS hot") == "there is no view hot"
        with pytest.raises(UnknownName, match="there is no view `hot`"):
            one.say("DROP VIEW hot")
        with pytest.raises(UnknownName, match="`bids` is a source, not a view"):
            one.say("DROP VIEW bids")


def test_a_topic_that_is_used_is_not_dropped(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS)
        with pytest.raises(DefinitionError, match="the source `bids` uses the topic `bids`"):
            one.say("DROP TOPIC bids")
        one.say("DROP SOURCE bids")
        assert one.home.topics() == ["bids"]
        assert one.said("DROP TOPIC bids") == "dropped the topic bids"
        assert one.home.topics() == []
        assert one.said("DROP TOPIC IF EXISTS bids") == "there is no topic bids"


def _broken(path: Path, *changes: tuple[str, str]) -> None:
    """Change the text of kept definitions, as another version of the program would read them."""
    definitions = Definitions.load(path)
    for name, sql in changes:
        definitions.entries[name].sql = sql
    definitions.save()


def test_a_broken_definition_is_shown_and_harms_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT, "CREATE VIEW dear AS SELECT auction FROM bids WHERE price > 100")
    _broken(tmp_path / "home", ("dear", "CREATE VIEW dear AS SELECT nothing FROM bids"))
    with opened(tmp_path / "home") as again:
        assert list(again.live.broken) == ["dear"]
        states = {r["view"]: r["state"] for r in again.rows("SHOW VIEWS")}
        assert states["dear"] == "broken: there is no column `nothing`"
        assert "broken" not in states["hot"]
        assert [e.name for e in again.live.members("bids")] == ["hot"]
        assert [v.name for v in again.live.planned("bids").views] == ["hot"]
        assert again.said("DROP VIEW dear") == "dropped the view dear"
        assert again.live.broken == {}


def test_a_definition_that_cannot_even_be_read_is_broken_too(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT)
    _broken(tmp_path / "home", ("hot", "CREATE VIEW hot AS SELEKT"))
    with opened(tmp_path / "home") as again:
        assert list(again.live.broken) == ["hot"]
        assert again.live.planned("bids") is None


def test_a_broken_definition_can_be_made_anew(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT)
    _broken(tmp_path / "home", ("hot", "CREATE VIEW hot AS SELECT nothing FROM bids"))
    with opened(tmp_path / "home") as again:
        again.say(f"{HOT.replace('CREATE', 'CREATE OR REPLACE')}")
        assert again.live.broken == {}


def test_a_catalog_that_was_changed_by_hand_is_damaged(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS)
    file = tmp_path / "home" / FILE
    content = orjson.loads(file.read_bytes())
    file.write_bytes(orjson.dumps({**content, "flows": {"x": {}}}))
    with opened(tmp_path / "home2") as other:
        assert other.live.catalog.entries == {}
    with pytest.raises(HomeDamaged, match="cannot be read"):
        Definitions.load(tmp_path / "home")
    file.write_bytes(b"{")
    with pytest.raises(HomeDamaged):
        Definitions.load(tmp_path / "home")
    file.write_bytes(orjson.dumps({**content, "format": 99}))
    with pytest.raises(HomeTooNew, match="format 99"):
        Definitions.load(tmp_path / "home")


def test_definitions_are_read_as_they_were_written(tmp_path: Path) -> None:
    kept = Definitions(
        tmp_path / FILE, {"v": Definition("CREATE VIEW v", "f", "a INT")}, {"f": FlowNote("now", True)}, ["g"]
    )
    kept.save()
    found = Definitions.load(tmp_path)
    assert (found.entries, found.flows, found.dropped) == (kept.entries, kept.flows, kept.dropped)


# ---------------------------------------------------------------- flows


def test_the_copy_of_the_catalog_follows_it_and_never_undoes_a_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, copy = tmp_path / FILE, tmp_path / COPY
    kept = Definitions(tmp_path / FILE)
    kept.save()
    kept = kept.copy()
    kept.entries["a"] = Definition("CREATE SOURCE a ...", "source")

    def full(path: Path, data: bytes) -> None:
        if path == copy:
            raise DiskFull("no space left")
        write_durably(path, data)

    with monkeypatch.context() as patch:  # committed, also without its copy
        patch.setattr(definitions, "write_durably", full)
        kept.save()
        assert list(Definitions.load(tmp_path).entries) == ["a"]
    older, newer = copy.read_bytes(), main.read_bytes()
    assert older != newer
    assert list(Definitions.load(tmp_path).entries) == ["a"]
    assert copy.read_bytes() == newer  # whoever opens the home writes it
    main.write_bytes(older)
    with pytest.raises(HomeDamaged, match="older than its copy"):
        Definitions.load(tmp_path)
    main.unlink()
    with pytest.raises(HomeDamaged, match="cannot be read"):
        Definitions.load(tmp_path)


def test_a_refused_drop_of_a_topic_is_a_revision_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as spoken:
        spoken.say(BIDS)
        spoken.home.log.create("alone", pa.schema([("a", pa.int64())]))
        before = Definitions.load(tmp_path).revision

        def refused(name: str) -> None:
            raise LogInUse(f"another process writes to {name}")

        monkeypatch.setattr(spoken.home.log, "drop", refused)
        with pytest.raises(LogInUse):
            spoken.say("DROP TOPIC alone")
        kept = Definitions.load(tmp_path)
        assert (kept.revision, kept.pending) == (before + 2, [])


def test_views_that_come_before_any_record_share_a_flow(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT, "CREATE VIEW dear AS SELECT auction FROM bids WHERE price > 100")
        assert one.live.flows() == ["bids"]
        assert [e.name for e in one.live.members("bids")] == ["hot", "dear"]
        assert one.live.flow_of("DEAR") == one.live.flow_of("bids") == "bids"


def test_a_view_that_comes_later_gets_a_flow_of_its_own(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT, "INSERT INTO bids VALUES (1, 5, TIMESTAMP '2026-01-01 00:00:01')")
        one.perform("bids")
        assert (
            one.said("CREATE VIEW dear AS SELECT auction, price FROM bids WHERE price > 1") == "created the view dear"
        )
        assert one.live.flow_of("dear") == "dear"
        one.perform("dear")
        assert one.rows("SELECT * FROM dear") == [{"auction": 1, "price": 5}]


def test_a_view_that_starts_now_joins_the_running_flow(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT, "INSERT INTO bids VALUES (1, 5, TIMESTAMP '2026-01-01 00:00:01')")
        one.perform("bids")
        one.say("CREATE VIEW later WITH (start = 'now') AS SELECT price FROM bids")
        assert one.live.flow_of("later") == "bids"
        one.say("INSERT INTO bids VALUES (2, 7, TIMESTAMP '2026-01-01 00:00:02')")
        one.perform("bids")
        assert one.rows("SELECT price FROM later") == [{"price": 7}]
        assert one.rows("SELECT auction FROM hot ORDER BY 1") == [{"auction": 1}, {"auction": 2}]


def test_a_flow_can_be_named(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, "CREATE VIEW a WITH (flow = 'mine') AS SELECT price FROM bids", "SET flow = 'other'")
        one.say("CREATE VIEW b AS SELECT price FROM bids", "CREATE VIEW c AS SELECT auction FROM bids")
        assert {n: one.live.flow_of(n) for n in "abc"} == {"a": "mine", "b": "other", "c": "other"}


def test_a_paused_flow_stays_so(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT)
        assert one.said("PAUSE hot") == "the flow bids is paused; RESUME bids continues from the same place"
        assert [r["state"] for r in one.rows("SHOW FLOWS")] == ["paused"]
    with opened(tmp_path / "home") as again:
        assert [r["state"] for r in again.rows("SHOW FLOWS")] == ["paused"]
        assert again.said("RESUME FLOW bids") == "the flow bids is resumed"
        assert [r["state"] for r in again.rows("SHOW FLOWS")] == ["stopped"]
        with pytest.raises(UnknownName, match="no view, sink or flow `nothing`"):
            again.say("PAUSE nothing")


def test_a_dropped_view_leaves_its_fellows_alone(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT, "CREATE VIEW prices AS SELECT price FROM bids")
        one.say("INSERT INTO bids VALUES (1, 5, TIMESTAMP '2026-01-01 00:00:01')")
        one.perform("bids")
        one.say("DROP VIEW prices")
        assert "prices" not in one.home.store.tables()
        one.say("INSERT INTO bids VALUES (1, 6, TIMESTAMP '2026-01-01 00:00:02')")
        one.perform("bids")
        assert one.rows("SELECT n FROM hot") == [{"n": 2}]


def test_a_view_can_be_made_again_after_it_was_dropped(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT, "INSERT INTO bids VALUES (1, 5, TIMESTAMP '2026-01-01 00:00:01')")
        one.perform("bids")
        one.say("DROP VIEW hot", "CREATE VIEW hot AS SELECT sum(price) AS s FROM bids")
        flow = one.live.flow_of("hot")
        one.perform(flow)
        assert one.rows("SELECT * FROM hot") == [{"s": 5}]


def test_a_sink_gets_its_query_later(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, "CREATE SINK dear INTO LOG('dear')")
        one.say("INSERT INTO dear SELECT auction, price FROM bids WHERE price > 100")
        one.say(
            "INSERT INTO bids VALUES (1, 500, TIMESTAMP '2026-01-01 00:00:01'), (2, 5, TIMESTAMP '2026-01-01 00:00:01')"
        )
        one.perform("bids")
        topic = one.home.topic("dear")
        assert topic.read(0, 0, topic.end()[0]).select(["auction", "price"]).to_pylist() == [
            {"auction": 1, "price": 500}
        ]
        with pytest.raises(DefinitionError, match="already has a query"):
            one.say("INSERT INTO dear SELECT auction, price FROM bids")
        with pytest.raises(DefinitionError, match="is a sink"):
            one.say("INSERT INTO dear VALUES (1, 2)")


def test_the_two_statements_of_a_sink_may_be_repeated(tmp_path: Path) -> None:
    made, fed = "CREATE SINK dear INTO LOG('dear')", "INSERT INTO dear SELECT auction FROM bids"
    for _ in range(2):  # the second time in a home that has both
        with opened(tmp_path / "home") as one:
            one.say(BIDS, made, fed)
            assert one.said(made) == "the sink dear exists already"
            assert one.said(fed) == "the sink dear already receives the result of this query"
            assert [r["from"] for r in one.rows("SHOW SINKS")] == ["a query"]
            with pytest.raises(DuplicateName, match="there is a sink `dear` already"):
                one.say("CREATE SINK dear INTO LOG('cheap')")
            with pytest.raises(DefinitionError, match="already has a query"):
                one.say("INSERT INTO dear SELECT price FROM bids")


def test_a_sink_stays_when_the_query_for_it_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, "CREATE SINK dear INTO LOG('dear')")
        with pytest.raises(DefinitionError, match="no column `nothing`"):
            one.say("INSERT INTO dear SELECT nothing FROM bids")
        assert [r["sink"] for r in one.rows("SHOW SINKS")] == ["dear"]
        one.say("INSERT INTO dear SELECT auction FROM bids")
        assert [r["from"] for r in one.rows("SHOW SINKS")] == ["a query"]


# ---------------------------------------------------------------- functions and settings


def test_only_an_administrator_registers_functions(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        guest = Session(one.live, administrator=False)
        with pytest.raises(StatementRefused, match="administrator"):
            list(guest.execute("CREATE FUNCTION up AS 'os.path:basename' RETURNS STRING"))
        one.say("CREATE FUNCTION base AS 'os.path:basename' RETURNS STRING")
        assert one.rows("SHOW FUNCTIONS") == [{"function": "base", "python": "os.path:basename", "returns": "STRING"}]


def test_a_function_that_is_not_there(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        with pytest.raises(DefinitionError, match="cannot be loaded"):
            one.say("CREATE FUNCTION f AS 'no_such_module_at_all:f' RETURNS INT")
        with pytest.raises(DefinitionError, match=r"what `os\.path:basename` gives is not known"):
            one.say("CREATE FUNCTION f AS 'os.path:basename'")
        assert one.rows("SHOW FUNCTIONS") == []


def test_settings_are_those_of_a_session(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        assert one.said("SET wait = 5") == "wait = 5"
        assert {r["option"]: r["value"] for r in one.rows("SET")} == {
            "flow": "",
            "start": "",
            "wait": "5",
            "query_timeout": "60.0",
            "failed_views": "error",
            "query_memory": "1024MB",
        }
        assert one.rows("SET wait")[0]["value"] == "5"
        assert Session(one.live).settings["wait"] == 60
        for wrong in ("SET speed = 5", "SET wait = 'long'", "SET flow = 5"):
            with pytest.raises(DefinitionError):
                one.say(wrong)


def test_listings_name_what_is_there(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, ITEMS, HOT, "CREATE SINK told FROM hot INTO LOG('told')")
        assert one.rows("SHOW SOURCES")[0]["read_by"] == "hot, told"
        assert one.rows("SHOW SINKS")[0]["from"] == "hot"
        assert one.rows("SHOW SINKS")[0]["writes"] == "the topic told"
        (tmp_path / "lines").mkdir()
        one.say(f"CREATE SOURCE a (x BIGINT) FROM FILES(path = '{tmp_path}/lines', format = 'json')")
        one.say("CREATE SOURCE b FROM GENERATOR('nexmark', kind = 'bid')")
        places = {r["source"]: r["reads"] for r in one.rows("SHOW SOURCES")}
        assert places == {"bids": "the topic bids", "a": f"files in {tmp_path}/lines", "b": "the generator nexmark"}
        assert one.rows("SHOW TABLES") == [{"table": "items", "key": "id", "rows": 0, "read_by": ""}]
        assert [r["topic"] for r in one.rows("SHOW TOPICS")] == ["bids"]
        columns = one.rows("DESCRIBE bids")
        assert columns[2] == {"column": "ts", "type": "TIMESTAMP", "note": "event time"}
        assert next(r["note"] for r in one.rows("DESCRIBE items")) == "key"
        with pytest.raises(UnknownName, match="`nothing`"):
            one.say("DESCRIBE nothing")


def test_a_plan_is_explained(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT)
        assert re.search(r"keys +auction", one.say("EXPLAIN VIEW hot").text)
        one.say("CREATE VIEW hot_counts AS SELECT auction % 2 AS odd, count(*) AS n FROM hot GROUP BY auction % 2")
        over = one.say("EXPLAIN VIEW hot_counts").text
        assert "changes of the view hot" in over and "table hot_counts" in over and "table hot\n" not in over
        one.say("DROP VIEW hot_counts")
        assert "on close" in one.say(
            "EXPLAIN SELECT count(*) AS n FROM bids GROUP BY TUMBLE(ts, '1 minute') EMIT ON CLOSE"
        ).text.lower().replace("when the window closes", "on close")
        joined = one.say("EXPLAIN SELECT a.auction FROM bids a JOIN bids b ON a.auction = b.auction").text
        assert "all rows, kept indefinitely" in joined, "nothing bounds it"
        with pytest.raises(Unsupported):
            one.say("EXPLAIN SELECT stddev(price) OVER (ORDER BY ts) AS x FROM bids")


def test_an_error_says_where_in_the_statement(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS)
        with pytest.raises(DefinitionError) as caught:
            one.say("CREATE TABLE bids (a INT)")
        assert caught.value.origin is not None and caught.value.origin.column == 14
