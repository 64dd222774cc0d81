"""The operators of a large epoch on the executors: which run there, at which level, and how rows travel."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from millstream.engine.exchange import parcels, routes
from millstream.engine.exchange.graph import FINISH, PAIRS, Edge, Graph
from millstream.engine.exchange.parcels import FILE, PARCEL_BYTES, ROWS, Sender, parcels_of
from millstream.engine.exchange.results import forget_changes, opened
from millstream.engine.exchange.routes import Routes, in_order
from millstream.engine.tasks import collected
from millstream.kernels.outcome import EPOCH_ROWS, OperatorClock
from millstream.state.ipc import ipc_bytes
from millstream.state.local_storage import LocalStorage
from millstream.state.shard import shard_of
from tests.sql.engine import QueryEngine, QueryScript
from tests.sql.test_relations import flow_of, row

JOINED = "(SELECT a.k, a.v, b.v AS w FROM a JOIN b ON a.k = b.k)"


def graph_of(sql: str) -> Graph:
    with tempfile.TemporaryDirectory() as folder, QueryScript(flow_of({"v": sql}), folder) as script:
        engine = script._loop.engine
        assert isinstance(engine, QueryEngine)
        return engine.graph


def levels(sql: str) -> dict[str, int]:
    return {type(n.operator).__name__: n.level for n in graph_of(sql).nodes.values()}


# ---------------------------------------------------------------- the graph


def test_an_operator_runs_one_level_after_what_feeds_it() -> None:
    sql = f"SELECT w, count(*) AS n FROM (SELECT DISTINCT k, w FROM {JOINED} j) d GROUP BY w"
    assert levels(sql) == {"PassThrough": 0, "Join": 1, "DistinctRows": 2, "ChangingAggregation": 3}
    assert not graph_of(sql).reasons


@pytest.mark.parametrize(
    ("sql", "operator"),
    [
        ("SELECT k, count(*) AS n FROM a GROUP BY k", "Aggregation"),
        ("SELECT DISTINCT k, v FROM a", "DistinctRows"),
        ("SELECT k FROM a EXCEPT SELECT k FROM b", "SetOperation"),
        (
            "SELECT * FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS r FROM a) z WHERE r <= 2",
            "TopN",
        ),
        ("SELECT k, sum(v) OVER (PARTITION BY k ORDER BY ts) AS s FROM a", "WindowFunctions"),
        ("SELECT a.k, b.v FROM a LEFT JOIN b ON a.k = b.k AND a.v < b.v", "Join"),
        ("SELECT a.k, b.v FROM a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts", "AsOfJoin"),
    ],
)
def test_an_operator_over_sources_runs_on_the_executors(sql: str, operator: str) -> None:
    assert levels(sql)[operator] == 1


def test_the_driver_runs_a_loop_and_everything_downstream() -> None:
    loop = "WITH RECURSIVE r AS (SELECT k, v FROM a UNION SELECT r.k, b.v FROM r JOIN b ON r.v = b.k) "
    found = graph_of(f"{loop} SELECT k, count(*) AS n FROM r GROUP BY k")
    assert {type(n.operator).__name__ for n in found.nodes.values()} == {"PassThrough"}
    first, second = found.reasons.values()
    assert "which runs there" not in first
    assert "which runs there" in second
    assert all(n.to_driver for n in found.nodes.values())


def test_a_join_whose_condition_spark_evaluates_takes_two_levels() -> None:
    sql = "SELECT a.k, count(*) AS n FROM a LEFT JOIN b ON a.k = b.k AND abs(a.v) < b.v GROUP BY a.k"
    found = graph_of(sql)
    assert not found.reasons
    assert levels(sql) == {"PassThrough": 0, "Join": 2, "ChangingAggregation": 3}
    (join,) = found.pairing(1)
    assert join.pairs in found.computed(1)
    assert join.pairs is not None and join.pairs.side == PAIRS
    assert set(found.steps(1)) == set(found.steps(2)), "both levels read the state of the join"


def test_spark_computes_between_two_levels() -> None:
    found = graph_of(CHAINS["computed"])
    assert not found.reasons
    assert found.levels == 3
    (edge,) = found.computed(2)
    assert edge.schema is not None
    assert edge.schema.names[0] == "$op"
    (finish,) = graph_of(CHAINS["shown_computed"]).computed(1)
    assert finish.side == FINISH


def test_an_operator_without_a_source_runs_before_the_job() -> None:
    found = graph_of("SELECT a.k, x.n FROM a JOIN (SELECT * FROM (VALUES (1, 'one')) t(k, n)) x ON a.k = x.k")
    assert found.first
    assert [edge.view for edge, _ in found.sends] == [n.number for n in found.nodes.values() if n.level == 1]
    assert "Join" in {type(n.operator).__name__ for n in found.nodes.values()}


# ---------------------------------------------------------------- the same rows with any number of shards

CHAINS = {
    "counted": f"SELECT w, count(*) AS n, sum(v) AS s FROM {JOINED} j GROUP BY w",
    "first": f"SELECT * FROM (SELECT k, v, w, row_number() OVER (PARTITION BY w ORDER BY v, k) AS r FROM {JOINED} j) "
    "z WHERE r <= 2",
    "total": f"SELECT count(*) AS n FROM (SELECT DISTINCT k, w FROM {JOINED} j) d",
    "outer_rows": "SELECT a.k, a.v, b.s FROM a FULL JOIN b ON a.k = b.k AND a.v = b.v",
    "common": "SELECT k, v FROM a INTERSECT ALL SELECT k, v FROM b",
    "running": "SELECT k, v, sum(v) OVER (PARTITION BY k ORDER BY ts, v, s) AS t FROM a",
    "computed": f"SELECT w * 2 + 1 AS d, count(*) AS n FROM (SELECT DISTINCT k, w FROM {JOINED} j) q WHERE abs(k) > 0 "
    "GROUP BY w * 2 + 1",
    "shown_computed": "SELECT a.k + 1 AS k, coalesce(b.v, -a.v) AS c FROM a LEFT JOIN b ON a.k = b.k",
    "updated": "SELECT k, n * 10 + abs(n) AS m FROM (SELECT k, count(*) AS n FROM (SELECT DISTINCT k, v FROM a) d "
    "GROUP BY k) g WHERE abs(n) > 1",
    "plain": "SELECT k, s FROM a WHERE v > 0",
    **{
        f"{how.lower()}_where": f"SELECT a.k, a.v, b.v AS w FROM a {how} JOIN b ON a.k = b.k AND abs(a.v) < b.v + 1"
        for how in ("INNER", "LEFT", "RIGHT", "FULL")
    },
    "semi_where": "SELECT k, v, s FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND abs(b.v) > a.v)",
    "anti_where": "SELECT k, v, s FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND abs(b.v) > a.v)",
    "over_where": "SELECT w, count(*) AS n FROM "
    "(SELECT a.k, b.v AS w FROM a LEFT JOIN b ON a.k = b.k AND abs(a.v) < b.v) j GROUP BY w",
    "where_over": "SELECT x.k, x.n, b.s FROM (SELECT k, count(*) AS n FROM a GROUP BY k) x "
    "LEFT JOIN b ON x.k = b.k AND abs(b.v) <= x.n",
}


def rows_of(shards: list[int]) -> dict[str, list[str]]:
    chance = random.Random(7)
    with tempfile.TemporaryDirectory() as folder, QueryScript(flow_of(CHAINS), folder, shards=shards[0]) as script:
        for number in shards:
            if number != script.shards:
                script.crash()
                script.resume(shards=number)
            for name in ("a", "b"):
                script.send(name, *(row(chance) for _ in range(12)))
            script.tick()
            assert bool(script.reports[-1].output.loads) is (number > 1), "the tasks have done it"
        return {name: sorted(map(repr, script.rows(name))) for name in CHAINS}


@pytest.fixture(scope="module")
def rows_of_one_shard() -> dict[str, list[str]]:
    return rows_of([1, 1, 1])


@pytest.mark.parametrize("shards", [[3, 3, 3], [7, 7, 7], [2, 7, 3], [1, 3, 1]])
def test_views_do_not_depend_on_the_number_of_shards(
    shards: list[int], rows_of_one_shard: dict[str, list[str]]
) -> None:
    assert rows_of(shards) == rows_of_one_shard


def test_files_of_changes_are_what_parcels_are(
    monkeypatch: pytest.MonkeyPatch, rows_of_one_shard: dict[str, list[str]]
) -> None:
    monkeypatch.setattr(routes, "FILE_BYTES", 0)
    monkeypatch.setattr(parcels, "PARCEL_BYTES", 64)
    monkeypatch.setattr(parcels, "RECORD_ROWS", 1)
    monkeypatch.setattr(collected, "SEND_BYTES", 0)
    assert rows_of([3, 3, 3]) == rows_of_one_shard


# ---------------------------------------------------------------- parcels


def test_a_large_frame_is_cut_into_parcels_that_keep_the_order() -> None:
    frame = pl.DataFrame({"n": np.arange(5 * PARCEL_BYTES // 16)})
    sent = list(parcels_of(Sender(3).rows(ROWS, 1, frame)))
    assert len(sent) > 1
    assert max(len(p.payload) for p in sent) <= PARCEL_BYTES + 4096
    random.Random(1).shuffle(sent)
    again = pl.concat([p.rows() for p in sorted(sent, key=lambda p: p.place)])
    assert again.equals(frame)


def test_rows_go_to_the_shard_of_their_key_in_their_order() -> None:
    hashes = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 1000)
    rows = pl.DataFrame({"h": hashes, "n": np.arange(1000)})
    found = dict(Routes(Graph(), 7, frozenset(), LocalStorage(Path())).split(0, hashes, rows))
    assert sum(map(len, found.values())) == 1000
    for shard, part in found.items():
        assert (shard_of(part["h"].to_numpy(), 7) == shard).all()
        assert part["n"].is_sorted()


def test_an_operator_that_runs_in_one_shard_gets_all_rows_there() -> None:
    rows = pl.DataFrame({"n": [1, 2]})
    found = dict(Routes(Graph(), 7, frozenset({4}), LocalStorage(Path())).split(4, np.array([-(2**62), 2**62]), rows))
    assert {shard: part["n"].to_list() for shard, part in found.items()} == {0: [1, 2]}


def test_rows_that_only_pass_through_stay_in_their_shard() -> None:
    found = graph_of(f"SELECT k, v FROM {JOINED} j UNION ALL SELECT k, v FROM a")
    (view,) = (n.number for n in found.nodes.values() if n.operator.keeps_place)
    rows = pl.DataFrame({"$op": ["+I"] * 9, "k": range(9), "v": range(9)})
    sent = Routes(found, 7, frozenset(), LocalStorage(Path())).along(Edge(view, 0), rows, (), Sender(0, 5))
    assert {p.shard for p in parcels_of(sent)} == {5}


def test_ordered_rows_are_sorted_where_they_arrive() -> None:
    rows = pl.DataFrame({"$order0": [1, 0, 0], "$order1": [0, 2, 1], "v": ["c", "b", "a"]})
    assert in_order(rows).to_dict(as_series=False) == {"v": ["a", "b", "c"]}


def test_numbers_of_rows_are_unique_over_epochs_and_shards() -> None:
    most = EPOCH_ROWS // 4096
    firsts = []
    for epoch in (1, 2):
        for shard in range(4096):
            first, second = OperatorClock(0, 0, epoch=epoch, shard=shard, shards=4096).row_numbers(1)
            firsts.append(int(first[0]))
            assert not second.any()
    assert firsts == sorted(set(firsts)) and min(np.diff(firsts)) >= most


def test_numbers_of_rows_are_unique_in_a_shard_with_more_rows_than_its_part() -> None:
    shards, most = 1 << 20, EPOCH_ROWS >> 20
    pairs: set[tuple[int, int]] = set()
    for shard in range(3):
        clock = OperatorClock(0, 0, epoch=1, shard=shard, shards=shards)
        pairs |= set(zip(*(n.tolist() for n in clock.row_numbers(2 * most + 5)), strict=True))
    assert len(pairs) == 3 * (2 * most + 5)


def test_a_file_of_changes_goes_when_the_driver_has_mapped_it(tmp_path: Path) -> None:
    files, table = LocalStorage(tmp_path), pl.DataFrame({"n": [1, 2]}).to_arrow()
    for name in ("000000000003-1-0-0-2.arrow", "000000000002-1-0-0-2.arrow", "000000000004-1-0-0-2.arrow"):
        files.put(name, ipc_bytes(table))
    sent = Sender(0, 0).data(FILE, 2, b"000000000003-1-0-0-2.arrow")
    results = opened([sent], files)
    assert files.names() == {"000000000002-1-0-0-2.arrow", "000000000004-1-0-0-2.arrow"}
    assert results.operators[2].final == [table]
    forget_changes(files, 3)  # what other attempts have left
    assert files.names() == {"000000000004-1-0-0-2.arrow"}


def test_parcels_of_rows_are_read_as_one_stream_in_their_order() -> None:
    first = pl.DataFrame({"a": [1, 2], "b": ["x", None]})
    other = pl.DataFrame({"a": [3], "b": ["y" * 40], "c": [0.5]})
    kinds = pl.DataFrame({"a": [4], "b": ["z"]}), pl.DataFrame({"a": [5], "b": [None]}, schema=first.schema)
    frames = [first, first.clear(), first.reverse(), other, other, *kinds]
    sent = [batch for frame in frames for batch in Sender(0).data(parcels.FINAL, 0, parcels.pack(frame)).to_pylist()]
    together = pl.from_arrow(parcels.joined([memoryview(s["payload"]) for s in sent]))
    assert isinstance(together, pl.DataFrame) and together.equals(pl.concat(frames, how="diagonal"))


def test_streams_with_dictionaries_of_their_own_are_read_as_one() -> None:
    frames = [pl.DataFrame({"a": values}, schema={"a": pl.Categorical()}) for values in (["x", "y"], ["z", "x"], ["y"])]
    together = pl.from_arrow(parcels.joined([memoryview(parcels.pack(frame)) for frame in frames]))
    assert isinstance(together, pl.DataFrame) and together["a"].to_list() == ["x", "y", "z", "x", "y"]
