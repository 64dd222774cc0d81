"""Statements are atomic, and names stay in their folders: what is refused changes nothing, and what is made again under
an old name is not mixed with what was there.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from millstream.errors import DefinitionError, DuplicateName, HomeDamaged, MillstreamError
from millstream.live.definitions import FILE, Definition, Definitions, FlowNote
from millstream.runtime.supervision.run import Run
from tests.sql.engine import QueryEngine
from tests.unit.live.world import BIDS, HOT, ITEMS, Spoken, opened

HOSTILE = ["/tmp/millstream-never", "../../canary", "x y", "..", "a/b", "é", "x" * 300, "$x", "a\nb"]


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    folder = tmp_path / "canary"
    folder.mkdir()
    (folder / "file").write_text("as it was")
    return folder


def insert(one: Spoken, *prices: int) -> None:
    rows = ", ".join(f"({p % 3}, {p}, TIMESTAMP '2026-01-01 00:00:01')" for p in prices)
    one.say(f"INSERT INTO bids VALUES {rows}")


# ---------------------------------------------------------------- names


def test_a_flow_with_a_bad_name_is_refused_and_nothing_is_kept(tmp_path: Path, canary: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS)
        before = (tmp_path / "home" / FILE).read_bytes()
        for name in (*HOSTILE, str(canary)):
            with pytest.raises(DefinitionError, match="not a valid name for a flow"):
                one.say(f"CREATE VIEW a WITH (flow = '{name}') AS SELECT price FROM bids")
            with pytest.raises(DefinitionError, match="not a valid name for a flow"):
                one.say(f"SET flow = '{name}'")
        assert one.live.flows() == []
        assert (tmp_path / "home" / FILE).read_bytes() == before
        one.say(HOT)
    with opened(tmp_path / "home") as again:
        assert list(again.live.catalog.entries) == ["bids", "hot"]
    assert (canary / "file").read_text() == "as it was"


def test_a_bad_name_that_an_older_version_kept_harms_nothing(tmp_path: Path, canary: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT)
    kept = Definitions.load(tmp_path / "home")
    for name, flow in (("a", "../../canary"), ("b", "x y"), ("c", str(canary))):
        kept.entries[name] = Definition(f"CREATE VIEW {name} AS SELECT price FROM bids", "view", flow)
        kept.flows[flow] = FlowNote()
    kept.save()
    with opened(tmp_path / "home") as again:
        assert list(again.live.broken) == ["a", "b", "c"]
        again.say("CREATE VIEW d AS SELECT auction FROM bids", *(f"DROP VIEW {n} CASCADE" for n in "abc"))
        assert list(again.live.catalog.entries) == ["bids", "hot", "d"]
    assert (canary / "file").read_text() == "as it was"
    with opened(tmp_path / "home") as last:
        assert last.live.broken == {}


def test_a_folder_of_a_flow_that_is_a_link_is_not_followed(tmp_path: Path, canary: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT)
        (tmp_path / "home" / "flows").mkdir()
        (tmp_path / "home" / "flows" / "bids").symlink_to(canary)
        with pytest.raises(HomeDamaged, match="bids is a symbolic link"):
            one.say("DROP VIEW hot")
        (tmp_path / "home" / "flows" / "bids").unlink()
        one.say("CREATE VIEW b AS SELECT auction FROM bids")
        assert one.live.definitions.dropped == []
    assert (canary / "file").read_text() == "as it was"


def test_flows_are_told_apart_without_regard_to_case(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, "CREATE VIEW a WITH (flow = 'Mine') AS SELECT price FROM bids")
        one.say("CREATE VIEW b WITH (flow = 'mine') AS SELECT price FROM bids")
        assert one.live.flows() == ["Mine"]


def test_a_long_name_of_a_flow_is_not_cut(tmp_path: Path) -> None:
    name = "f" * 63
    with opened(tmp_path / "home") as one:
        one.say(BIDS, f"CREATE VIEW a WITH (flow = '{name}') AS SELECT price FROM bids")
        one.say(f"CREATE VIEW b WITH (flow = '{name}') AS SELECT price FROM bids")
        assert one.live.flows() == [name]


def test_a_topic_that_differs_in_case_only_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS)
        with pytest.raises(DuplicateName, match="differs from it in case only"):
            one.say("CREATE SOURCE other (a INT) FROM LOG('Bids')")
        assert list(one.live.catalog.entries) == ["bids"]


def test_a_stored_table_has_one_folder_in_any_case(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.home.put_table("Cities", [{"id": 1}])
        one.home.put_table("cities", [{"id": 2}])
        assert [p.name for p in (tmp_path / "home" / "tables").iterdir()] == ["Cities"]
        assert one.home.tables.newest() == {"Cities": 2}
        one.home.drop_table("CITIES")
        assert one.home.tables.newest() == {}


def test_the_longest_names_can_read_a_topic(tmp_path: Path) -> None:
    source, flow = "s" * 63, "f" * 63
    with opened(tmp_path / "home") as one:
        one.say(f"CREATE SOURCE {source} (a INT) FROM LOG('t')")
        one.say(f"CREATE VIEW v WITH (flow = '{flow}') AS SELECT a FROM {source}", "INSERT INTO t VALUES (1)")
        one.perform(flow)
        assert one.rows("SELECT a FROM v") == [{"a": 1}]


# ---------------------------------------------------------------- what is refused changes nothing


OPTIONS = ["flow = '/any/dir'", "flow = 'busy'", "start = 'yesterday'", "flow = 'x', nothing = 1", "panes = 3"]


def test_a_replacement_that_is_refused_leaves_the_old_one(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT, "CREATE VIEW other WITH (flow = 'busy') AS SELECT price FROM bids")
        insert(one, 5)
        one.perform("bids")
        one.perform("busy")
        before = (tmp_path / "home" / FILE).read_bytes()
        for option in OPTIONS:
            with pytest.raises(MillstreamError):
                one.say(f"CREATE OR REPLACE VIEW hot WITH ({option}) AS SELECT price FROM bids")
            assert one.live.catalog.get("hot").piece.sql == HOT
            assert (tmp_path / "home" / FILE).read_bytes() == before
        assert one.rows("SELECT n FROM hot") == [{"n": 1}]
        insert(one, 8)
        one.perform("bids")
        assert one.rows("SELECT n FROM hot") == [{"n": 2}]
    with opened(tmp_path / "home") as again:
        assert again.live.catalog.get("hot").piece.sql == HOT


def test_a_view_that_cannot_begin_where_it_says_is_refused_at_once(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(f"CREATE SOURCE f (a INT) FROM FILES('{tmp_path}', format = 'json')")
        with pytest.raises(MillstreamError, match="start = 'now' over files"):
            one.say("CREATE VIEW v WITH (start = 'now') AS SELECT a FROM f")
        assert list(one.live.catalog.entries) == ["f"]


def test_a_source_whose_topic_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        for options in ("partitions = 0", "key = 'none'", "retain = '0 seconds'", "retain_bytes = -1"):
            with pytest.raises(MillstreamError):
                one.say(f"CREATE SOURCE s (a INT) FROM LOG('t', {options})")
        assert one.live.catalog.entries == {}
        assert one.home.topics() == []


def test_a_source_that_is_refused_after_its_columns_were_read_makes_no_topic(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        with pytest.raises(MillstreamError):
            one.say("CREATE SOURCE s (a INT, WATERMARK FOR b AS b - INTERVAL '1' SECOND) FROM LOG('t')")
        assert one.home.topics() == []


def test_a_sink_to_nowhere_is_refused_before_it_is_fed(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT)
        with pytest.raises(DefinitionError):
            one.say("CREATE SINK s INTO LOG('../../x')")
        assert list(one.live.catalog.entries) == ["bids", "hot"]


def test_a_table_that_is_refused_leaves_the_old_one(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)")
        with pytest.raises(DefinitionError):
            one.say("CREATE OR REPLACE TABLE t (a INT, PRIMARY KEY (b))")
        assert one.rows("SELECT a FROM t") == [{"a": 1}]
        one.say("CREATE OR REPLACE TABLE t (b STRING)")
        assert one.rows("SELECT * FROM t") == []


def test_a_sink_that_a_query_feeds_goes_with_what_the_query_reads(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, "CREATE SINK s INTO LOG('out')", HOT, "INSERT INTO s SELECT auction, n FROM hot")
        assert one.said("DROP SOURCE bids CASCADE") == "dropped the source bids, and hot, s"
        assert one.live.catalog.entries == {}


def test_a_definition_that_cannot_be_read_can_be_dropped(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT)
    kept = Definitions.load(tmp_path / "home")
    kept.entries["hot"].sql = "CREATE VIEW hot AS SELEKT"
    kept.save()
    with opened(tmp_path / "home") as again:
        assert again.said("DROP VIEW hot") == "dropped the view hot"
        assert again.live.flows() == []


# ---------------------------------------------------------------- what feeds itself, what hides


def test_a_sink_into_the_topic_of_its_own_source_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT)
        for end in ("FROM hot INTO LOG('bids')", "INTO LOG('bids') AS SELECT auction, price, ts FROM bids"):
            with pytest.raises(DefinitionError, match="the sink `s` would feed itself: it writes to the topic `bids`"):
                one.say(f"CREATE SINK s {end}")
        assert list(one.live.catalog.entries) == ["bids", "hot"]


def test_a_sink_that_feeds_itself_through_another_flow_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, "CREATE SINK first INTO LOG('mid') AS SELECT auction, price, ts FROM bids")
        one.say("CREATE SOURCE mid (auction BIGINT, price BIGINT, ts TIMESTAMP) FROM LOG('mid')")
        with pytest.raises(DefinitionError, match="reads `mid` from `first` from `bids`"):
            one.say("CREATE SINK second INTO LOG('bids') AS SELECT auction, price, ts FROM mid")
        one.say("CREATE SINK second INTO LOG('out') AS SELECT auction, price, ts FROM mid")


def test_a_function_cannot_take_the_name_of_a_built_in_one(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        for name in ("upper", "Count", "lag", "tumble", "explode"):
            with pytest.raises(DefinitionError, match="is a built-in SQL function"):
                one.say(f"CREATE FUNCTION {name} AS 'math:sqrt' RETURNS DOUBLE")
        assert one.live.catalog.entries == {}


# ---------------------------------------------------------------- made again under an old name


def written(home: Path, topic: str) -> list[int]:
    with opened(home) as one:
        found = one.home.log.topic(topic)
        return found.read(0, 0, found.end()[0])["price"].to_pylist()


SINK = "CREATE SINK told INTO LOG('told') AS SELECT price FROM bids"


def test_a_sink_made_again_writes_at_once_and_mixes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, SINK)
        for price in (1, 2, 3):
            insert(one, price)
            one.perform("bids")
        one.say("DROP SINK told", SINK)
        insert(one, 4)
        one.perform("bids")
        insert(one, 5)
        one.perform("bids")
    # the first flow's records stay; the second reads from the beginning and writes them again, and then the new ones
    assert written(tmp_path / "home", "told") == [1, 2, 3, 1, 2, 3, 4, 5]


def test_generations_grow_whatever_happens(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS)
        seen = []
        for _ in range(4):
            one.say(SINK)
            insert(one, 1)
            one.perform("bids")
            seen.append(one.home.store.generation("bids", "told"))
            one.say("DROP SINK told")
        assert seen == [0, 1, 2, 3]


def test_a_home_that_goes_back_to_a_checkpoint_uses_no_generation_twice(tmp_path: Path) -> None:
    from millstream.runtime.recovery import checkpoint

    path = tmp_path / "home"
    with opened(path) as one:
        one.say(BIDS, SINK)
        insert(one, 1)
        one.perform("bids")
        one.home.checkpoint("before")
        for _ in range(2):
            one.say("DROP SINK told", SINK)
            one.perform("bids")
        used = one.home.store.generation("bids", "told")
    checkpoint.restore(path, "before")
    with opened(path) as again:
        assert again.home.store.generation("bids", "told") > used
        insert(again, 2)
        again.perform("bids")
    assert written(path, "told") == [1, 1, 1, 2]


def test_a_sink_that_leaves_a_flow_and_comes_back_has_a_generation_of_its_own(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT, SINK)
        insert(one, 1)
        one.perform("bids")
        one.say("DROP SINK told", "SET start = 'now'", SINK)
        assert one.home.store.generation("bids", "told") == 1
        assert one.home.store.generation("bids") == 0


def test_files_of_a_sink_that_was_dropped_stay_as_they_are(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = f"CREATE SINK told INTO FILES('{out}', format = 'json') AS SELECT price FROM bids"
    for name in ("home", "other"):  # another home that writes to the same folder mixes nothing either
        with opened(tmp_path / name) as one:
            one.say(BIDS)
            for price in (1, 2):
                before = {p.name: p.read_bytes() for p in out.glob("*")}
                one.say(sink)
                insert(one, price)
                one.perform("bids")
                one.say("DROP SINK told")
                after = {p.name: p.read_bytes() for p in out.glob("*")}
                assert {n: after[n] for n in before} == before
                assert len(after) == len(before) + 1
    assert [p.name[:8] for p in sorted(out.glob("*"))] == ["told-000", "told-001", "told-002", "told-003"]


# ---------------------------------------------------------------- stored tables


def test_rows_of_a_table_that_cannot_be_kept_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "home") as one:
        one.say("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)")

        def full(*_: object) -> None:
            raise OSError(28, "no space")

        with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
            patch.setattr("millstream.runtime.epoch.stored_tables.write_durably", full)
            one.say("INSERT INTO t VALUES (2)")
        assert one.rows("SELECT a FROM t") == [{"a": 1}]
        assert one.home.tables.newest() == {"t": 2}
        one.say("INSERT INTO t VALUES (3)")
        assert one.rows("SELECT a FROM t ORDER BY 1") == [{"a": 1}, {"a": 3}]


def test_the_file_of_a_table_is_written_again_from_the_store(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(ITEMS)
        one.say("INSERT INTO items VALUES (1, 'a', 1.50, array('x'), TIMESTAMP '2026-01-01 00:00:00')")
        path = one.home.tables.path("items", 2)
        before = path.read_bytes()
        path.unlink()
        assert one.home.tables.newest() == {"items": 1}
    with opened(tmp_path / "home") as again:  # a session opens the store
        assert again.home.tables.newest() == {"items": 2}
        assert path.read_bytes() == before


def test_a_view_does_not_join_a_flow_whose_first_epoch_is_under_way(tmp_path: Path) -> None:
    """The flow that runs commits its first epoch, without the new view, while the statement that makes the view stops
    it.
    """
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT, "INSERT INTO bids VALUES (1, 5, TIMESTAMP '2026-01-01 00:00:00')")
        loop = one.home.loop(one.live.planned("bids"), engine=QueryEngine)

        class UnderWay:
            def stop(self, timeout: float | None) -> None:
                assert timeout is None
                loop.step()
                loop.close()

        one.live.runs["bids"] = UnderWay()
        one.say("CREATE VIEW dear AS SELECT auction, max(price) AS most FROM bids GROUP BY auction")
        assert one.live.runs == {}
        flow = one.live.flow_name("dear")
        assert flow != "bids"
        one.perform(flow)
        assert one.rows("SELECT most FROM dear") == [{"most": 5}]
        assert one.rows("SELECT n FROM hot") == [{"n": 1}]


def test_a_statement_on_a_disk_that_became_read_only_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, data: bytes) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    with opened(tmp_path / "home") as one:
        one.say(BIDS)
        monkeypatch.setattr("millstream.live.definitions.write_durably", refused)
        with pytest.raises(HomeDamaged, match="is mounted read-only"):
            one.say(HOT)
        assert list(one.live.definitions.entries) == ["bids"]


def test_a_dropped_flow_is_listed_nowhere(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say(BIDS, HOT)
        insert(one, 1, 2)
        one.perform("bids")
        assert [r["flow"] for r in one.home.lag()] == [r["flow"] for r in one.home.flows()] == ["bids"]
        one.home.open_home.runs["bids"] = Run("bids", lambda: None)  # type: ignore[assignment,arg-type,return-value]
        one.home.open_home.runs["bids"].stop()
        one.say("DROP VIEW hot")
        assert one.home.lag() == one.home.flows() == one.home.views() == one.home.watermarks() == []
        assert one.home.log.topic("bids").holds() == {}
