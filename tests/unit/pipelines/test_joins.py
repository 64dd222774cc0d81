"""Joins bounded by time, as-of joins, loops and stored tables through flows, against batches of the same rows.

Without Spark: DuckDB computes expressions in its place. Joins that nothing bounds are in tests/sql/test_relations.py.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.engine.exchange import hot_keys
from millstream.errors import DefinitionError, MillstreamError, SchemaError, Unsupported
from millstream.testing.script import STEPS, Crash
from tests.duck import connected
from tests.local import LocalScript
from tests.sql.engine import QueryEngine

BASE = 1_767_225_600
FAR = 200
KINDS = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
HOWS = ("inner", "left", "right", "full", "semi", "anti")


class Script(LocalScript):
    """Runs a flow with DuckDB in Spark's place."""

    def _loop_of(self, home: Any) -> Any:
        return home.loop(self._plan, failpoint=self._failpoint, engine=QueryEngine)


class ShardedScript(LocalScript):
    """The same with tasks of executors."""

    def _loop_of(self, home: Any) -> Any:
        return home.loop(
            self._plan,
            failpoint=self._failpoint,
            engine=lambda plan, ports, root: QueryEngine(plan, ports, root, shards=self.shards),
        )


def two(lateness: str = "20 seconds") -> tuple[ms.Flow, ms.Stream, ms.Stream]:
    flow = ms.Flow("two")
    made = [
        flow.source(name, ms.memory(), schema="k BIGINT, v BIGINT, ts TIMESTAMP", event_time="ts", lateness=lateness)
        for name in ("a", "b")
    ]
    return flow, *made


def at(k: Any, v: Any, second: float) -> dict[str, Any]:
    return {"k": k, "v": v, "ts": BASE + second}


def some(chance: random.Random, low: int, high: int) -> list[dict[str, Any]]:
    """Rows of some seconds, in any order."""
    keys = [None, 1, 1, 2, 3]
    return [
        at(chance.choice(keys), chance.randrange(4), chance.randrange(low, high)) for _ in range(chance.randrange(7))
    ]


def shown(script: Script, view: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(r.values()) for r in script.rows(view))


def batch(sent: dict[str, list[dict[str, Any]]], sql: str) -> Counter[tuple[Any, ...]]:
    with connected() as duck:
        for name, rows in sent.items():
            columns = {c: [r[c] for r in rows] for c in ("k", "v")}
            columns["ts"] = [int(r["ts"] * 1_000_000) for r in rows]
            duck.register(name, pa.table(columns, schema=KINDS))
        table = duck.sql(sql).to_arrow_table()
        return Counter(zip(*(table.column(i).to_pylist() for i in range(table.num_columns)), strict=True))


SQL = {
    "inner": "SELECT a.k, a.v, a.ts, b.k, b.v, b.ts FROM a JOIN b ON {}",
    "left": "SELECT a.k, a.v, a.ts, b.k, b.v, b.ts FROM a LEFT JOIN b ON {}",
    "right": "SELECT a.k, a.v, a.ts, b.k, b.v, b.ts FROM a RIGHT JOIN b ON {}",
    "full": "SELECT a.k, a.v, a.ts, b.k, b.v, b.ts FROM a FULL JOIN b ON {}",
    "semi": "SELECT a.k, a.v, a.ts FROM a SEMI JOIN b ON {}",
    "anti": "SELECT a.k, a.v, a.ts FROM a ANTI JOIN b ON {}",
}
SEEDS = [0, pytest.param(1, marks=pytest.mark.slow)]
ON = "a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 3 SECOND AND a.ts + INTERVAL 7 SECOND AND a.v <= b.v + 1"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shards", [1, 5])
@pytest.mark.parametrize("unmatched", ["certain", "at once"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_join_bounded_by_time_is_what_a_batch_gives_and_keeps_nothing_for_good(
    seed: int, unmatched: str, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for constant in ("SPLIT_ROWS", "SPLIT_SHARE", "FREQUENT"):  # every key is hot, if there are several shards
        monkeypatch.setattr(hot_keys, constant, 0)
    chance = random.Random(seed)
    where, condition = ("v <= v_right + 1", ON) if shards == 1 else ("v <= v_right", ON.removesuffix(" + 1"))
    flow, a, b = two()
    for how in HOWS:
        made = a.join(b, on={"k": "k"}, how=how, where=where, within=("-3 seconds", "7 seconds"), unmatched=unmatched)
        made.view(how)
    sent: dict[str, list[dict[str, Any]]] = {"a": [], "b": []}
    split: set[str] = set()
    kind = Script if shards == 1 else ShardedScript
    with tempfile.TemporaryDirectory() as folder, kind(flow, folder, shards=shards) as script:
        for epoch in range(5):
            for name, rows in sent.items():
                come = some(chance, 10 * epoch, 10 * epoch + 20)
                rows += come
                if come:
                    script.send(name, *come)
            script.tick()
            split |= set(script._loop._hot)
            if epoch == 2:
                script.crash()
                script.resume(shards=shards + 2 if shards > 1 else 1)
            if unmatched == "at once":
                for how in HOWS:
                    assert shown(script, how) == batch(sent, SQL[how].format(condition)), (how, sent)
        for name, rows in sent.items():
            script.send(name, at(-1, 0, FAR))
            rows.append(at(-1, 0, FAR))
        script.tick()
        script.tick()
        for name, rows in sent.items():
            script.send(name, at(-2, 0, FAR + 100))  # so that the watermark passes the ones before, too
            rows.append(at(-2, 0, FAR + 100))
        script.tick()
        script.tick()
        for how in HOWS:
            expected = batch(sent, SQL[how].format(condition) + " WHERE true")
            late = {r for r in expected if -2 in (r[0], r[-3])} if unmatched == "certain" and how != "inner" else set()
            assert shown(script, how) - Counter(late) == expected - Counter(late), (how, sent)
        assert all(not script.rows(f"{how}$late") for how in HOWS)
        assert len(split) == (len(HOWS) - 1 if shards > 1 else 0), "all but the full join"
        held = sum(script._loop.version.rows(step) for step in script._loop.version.runs)
        assert held < 12 * len(HOWS), "no more than the last rows"


def test_rows_without_a_partner_come_when_it_is_certain(tmp_path: Path) -> None:
    flow, a, b = two("0 seconds")
    a.join(b, on="k", how="left", within="5 seconds").select("k", "v", "v_right").view("j")
    with Script(flow, tmp_path) as script:
        script.send("a", at(1, 10, 0), at(2, 20, 0))
        script.send("b", at(1, 11, 2)).tick()
        assert shown(script, "j") == Counter({(1, 10, 11): 1}), "2 may still find one"
        script.send("a", at(9, 0, 6))
        script.send("b", at(9, 0, 6)).tick()
        script.tick()
        assert shown(script, "j")[(2, 20, None)] == 1
        script.send("b", at(2, 21, 3)).tick()
        assert shown(script, "j")[(2, 20, None)] == 1, "it came too late"
        assert [r["reason"] for r in script.rows("j$late")] == ["behind the watermark"]


def test_a_bound_in_the_data_bounds_what_is_kept(tmp_path: Path) -> None:
    flow = ms.Flow("house")
    auctions = flow.source("a", ms.memory(), schema="id BIGINT, ends TIMESTAMP, ts TIMESTAMP", event_time="ts")
    bids = flow.source("b", ms.memory(), schema="auction BIGINT, price BIGINT, ts TIMESTAMP", event_time="ts")
    auctions.join(bids, on={"id": "auction"}, where="ts_right BETWEEN ts AND ends").select("id", "price").view("j")
    with Script(flow, tmp_path) as script:
        script.send("a", {"id": 1, "ends": BASE + 10, "ts": BASE}, {"id": 2, "ends": BASE + 99, "ts": BASE})
        script.send("b", {"auction": 1, "price": 5, "ts": BASE + 9}, {"auction": 2, "price": 6, "ts": BASE + 1}).tick()
        for second in (50, 51):
            script.send("a", {"id": 3, "ends": BASE + second, "ts": BASE + second})
            script.send("b", {"auction": 2, "price": second, "ts": BASE + second}).tick()
        assert shown(script, "j") == Counter({(1, 5): 1, (2, 6): 1, (2, 50): 1, (2, 51): 1})
        version, last = script._loop.version, BASE * 1_000_000 + 50_000_000
        ends = {s: [b.last for r in version.of(s) for b in r.batches if not b.dropped] for s in version.runs}
        assert all(end > last for found in ends.values() for end in found), "the first auction and old bids are gone"


AS_OF = {
    "backward": "SELECT a.k, a.v, a.ts, b.v FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.ts >= b.ts",
    "strict": "SELECT a.k, a.v, a.ts, b.v FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.ts > b.ts",
    "forward": "SELECT a.k, a.v, a.ts, (SELECT arg_min(b.v, b.ts) FROM b WHERE b.k = a.k AND b.ts >= a.ts "
    "AND b.ts <= a.ts + INTERVAL 5 SECOND) FROM a",
    "near": "SELECT a.k, a.v, a.ts, (SELECT arg_max(b.v, b.ts) FROM b WHERE b.k = a.k AND b.ts <= a.ts "
    "AND b.ts >= a.ts - INTERVAL 5 SECOND) FROM a",
}


@pytest.mark.parametrize("seed", SEEDS)
def test_as_of_joins_are_what_a_batch_gives(seed: int) -> None:
    chance = random.Random(seed)
    flow, a, b = two()
    ways: dict[str, dict[str, Any]] = {
        "backward": {},
        "strict": {"strict": True},
        "forward": {"direction": "forward", "tolerance": "5 seconds"},
        "near": {"tolerance": "5 seconds"},
    }
    for name, how in ways.items():
        a.join_as_of(b, on={"k": "k"}, **how).select("k", "v", "ts", "v_right").view(name)
    sent: dict[str, list[dict[str, Any]]] = {"a": [], "b": []}
    versions = {(k, s): chance.randrange(100) for k in (1, 2, 3) for s in range(0, 70, 3)}  # one at a time
    with tempfile.TemporaryDirectory() as folder, Script(flow, folder) as script:
        for epoch in range(5):
            sent["a"] += (come := some(chance, 10 * epoch, 10 * epoch + 20))
            if come:
                script.send("a", *come)
            fits = [x for x in versions if 10 * epoch <= x[1] < 10 * epoch + 20]
            picked = chance.sample(fits, min(4, len(fits)))
            new = [at(k, versions.pop((k, s)), s) for k, s in picked]
            sent["b"] += new
            if new:
                script.send("b", *new)
            script.tick()
            if epoch == 1:
                script.crash()
                script.resume()
        for name in sent:
            script.send(name, at(-1, 0, FAR))
        script.tick()
        script.tick()
        for name, sql in AS_OF.items():
            assert shown(script, name) == batch(sent, sql), (name, sent)


def test_windows_over_a_join_answer_and_settle(tmp_path: Path) -> None:
    flow, a, b = two("0 seconds")
    pairs = a.join(b, on="k", within="5 seconds")
    window = pairs.key_by("k").window(ms.tumbling("10 seconds"), time="ts")
    window.aggregate(n=ms.count()).select("window_end", "k", "n").view("live")
    closing = pairs.key_by("k").window(ms.tumbling("10 seconds"), trigger=ms.on_close(), time="ts")
    closing.aggregate(n=ms.count()).select("window_end", "k", "n").view("once")
    with Script(flow, tmp_path) as script:
        script.send("a", at(1, 0, 1), at(1, 0, 8))
        script.send("b", at(1, 0, 4), at(1, 0, 9)).tick()
        assert [r["n"] for r in script.rows("live")] == [3]
        assert script.rows("once") == []
        for second in (40, 60):
            script.send("a", at(2, 0, second))
            script.send("b", at(2, 0, second)).tick()
        script.tick()
        assert sorted((r["k"], r["n"]) for r in script.rows("once")) == [(1, 3), (2, 1)]


def test_rows_of_a_stored_table_revise_what_was_joined(tmp_path: Path) -> None:
    with ms.open(tmp_path) as home:
        home.put_table("items", pa.table({"k": [1, 2], "name": ["one", "two"]}))
    flow, a, _ = two()
    items = flow.table("items", schema="k BIGINT, name STRING")
    a.join(items, on="k", how="left").select("k", "name").view("named")
    items.key_by("name").aggregate(n=ms.count()).view("names")
    with Script(flow, tmp_path) as script:
        script.send("a", at(1, 0, 0), at(3, 0, 0)).tick()
        assert shown(script, "named") == Counter({(1, "one"): 1, (3, None): 1})
        script.home.put_table("items", pa.table({"k": [1, 3, 4], "name": ["uno", "three", "three"]}))
        script.tick()
        assert shown(script, "named") == Counter({(1, "uno"): 1, (3, "three"): 1}), "no row had to come for it"
        assert shown(script, "names") == Counter({("uno", 1): 1, ("three", 2): 1})
        script.crash()
        script.resume()
        script.tick()
        script.send("a", at(4, 0, 1)).tick()
        assert shown(script, "named")[(4, "three")] == 1


def _edges() -> tuple[ms.Flow, ms.Stream]:
    flow = ms.Flow("net")
    marks = flow.source("e", ms.memory(), schema="a BIGINT, b BIGINT, n BIGINT")
    return flow, marks.key_by("a", "b").aggregate(n=ms.sum("n")).where("n > 0").select("a", "b")


def _reached(edges: set[tuple[int, int]]) -> set[tuple[int, int]]:
    found = set(edges)
    while True:
        more = {(a, d) for a, b in found for c, d in edges if b == c} - found
        if not more:
            return found
        found |= more


def _parts(edges: set[tuple[int, int]]) -> set[tuple[int, int]]:
    label = {n: n for e in edges for n in e}
    for _ in label:
        for a, b in edges:
            label[a] = label[b] = min(label[a], label[b])
    return set(label.items())


@pytest.mark.parametrize("seed", SEEDS)
def test_loops_follow_edges_that_come_and_go(seed: int) -> None:
    chance = random.Random(seed)
    flow, edges = _edges()
    edges.iterate(lambda r: r.join(edges, on={"b": "a"}).select("a", b="b_right")).view("reached")
    both = edges.union(edges.select(a="b", b="a"))
    nodes = both.select("a", label="a").distinct()
    nodes.iterate(
        lambda r: (
            r.union(r.join(both, on="a").select(a="b", label="label")).key_by("a").aggregate(label=ms.min("label"))
        ),
        keep=False,
    ).view("parts")
    there: set[tuple[int, int]] = set()
    with tempfile.TemporaryDirectory() as folder, Script(flow, folder) as script:
        for epoch in range(4):
            come = {(chance.randrange(6), chance.randrange(6)) for _ in range(4)} - there
            gone = set(chance.sample(sorted(there), min(2, len(there))))
            there = (there | come) - gone
            script.send("e", *({"a": a, "b": b, "n": 1} for a, b in sorted(come)))
            if gone:
                script.send("e", *({"a": a, "b": b, "n": -1} for a, b in sorted(gone)))
            script.tick()
            assert set(shown(script, "reached")) == _reached(there)
            assert set(shown(script, "parts")) == _parts(there)
            if epoch == 1:
                script.crash()
                script.resume()


def test_a_loop_that_does_not_end_says_so(tmp_path: Path) -> None:
    flow, edges = _edges()
    edges.iterate(lambda r: r.select(a="a + 1", b="b"), most=20).view("v")
    with (
        Script(flow, tmp_path) as script,
        pytest.raises(MillstreamError, match="did not come to an end within 20 rounds"),
    ):
        script.send("e", {"a": 1, "b": 2, "n": 1}).tick()


def test_ranking_in_a_number_of_rounds(tmp_path: Path) -> None:
    flow, edges = _edges()
    degree = edges.key_by("a").aggregate(d=ms.count())
    links = edges.join(degree, on="a").select("a", "b", share="1.0D / d")
    start = edges.select("a").union(edges.select(a="b")).distinct().select("a", rank="1.0D")
    start.iterate(
        lambda r: (
            r.select("a", rank="0.15D")
            .union(r.join(links, on="a").select(a="b", rank="0.85D * rank * share"))
            .key_by("a")
            .aggregate(rank=ms.sum("rank"))
        ),
        keep=False,
        most=30,
        settle=False,
    ).view("ranks")
    with Script(flow, tmp_path) as script:
        script.send("e", *({"a": a, "b": b, "n": 1} for a, b in ((1, 2), (2, 1), (3, 1)))).tick()
        ranks = {r["a"]: r["rank"] for r in script.rows("ranks")}
        assert ranks[1] > ranks[2] > ranks[3]
        assert ranks[3] == pytest.approx(0.15)
        before = dict(ranks)
        script.send("e", {"a": 4, "b": 3, "n": 1}).tick()
        after = {r["a"]: r["rank"] for r in script.rows("ranks")}
        assert len(after) == 4
        assert after[3] > before[3]


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_of_a_join_changes_nothing(tmp_path: Path, step: str) -> None:
    flow, a, b = two()
    a.join(b, on={"k": "k"}, how="full").view("full")
    a.join(b, on="k", within="5 seconds").key_by("k").aggregate(n=ms.count(), last=ms.last("v")).view("counted")
    sent = {"a": [at(1, 1, 0), at(2, 2, 1)], "b": [at(1, 3, 2)]}
    more = {"a": [at(1, 4, 3)], "b": [at(2, 5, 4), at(3, 6, 5)]}
    with Script(flow, tmp_path) as script:
        for name, rows in sent.items():
            script.send(name, *rows)
        script.tick()
        for name, rows in more.items():
            script.send(name, *rows)
        script.crash(at=step)
        with pytest.raises(Crash):
            script.tick()
        script.resume()
        script.tick()
        everything = {n: sent[n] + more[n] for n in sent}
        assert shown(script, "full") == batch(everything, SQL["full"].format("a.k = b.k"))
        assert shown(script, "counted") == Counter({(1, 2, 4): 1, (2, 1, 2): 1})


def test_rows_that_nothing_comes_for_are_forgotten_after_their_time(tmp_path: Path) -> None:
    with ms.open(tmp_path) as home:
        home.put_table("items", pa.table({"k": [1], "name": ["one"]}))
    flow, a, b = two("0 seconds")
    a.join(b, on="k").select("k", "v", "v_right").view("pairs", state_ttl="10 seconds")
    items = flow.table("items", schema="k BIGINT, name STRING")
    a.join(items, on="k", how="left").select("v", "name").view("named", state_ttl="10 seconds")
    with Script(flow, tmp_path) as script:
        script.send("a", at(9, 0, 0))
        script.send("b", at(9, 0, 0)).tick()
        for second in (1, 5, 40, 41):
            script.send("a", at(1, second, second))
            script.send("b", at(9, 0, second)).tick()
        script.send("b", at(1, 7, 42)).tick()
        seen = {r["v"] for r in script.rows("pairs") if r["k"] == 1}
        assert seen == {40, 41}, "those of 1 and 5 are forgotten"
        script.send("a", at(1, 60, 60)).tick()
        assert shown(script, "named")[(60, "one")] == 1, "a table has its rows for good"


def test_duplicates_go_for_good_or_within_a_time(tmp_path: Path) -> None:
    flow, a, _ = two("5 seconds")
    a.deduplicate("k").view("first")
    a.deduplicate("k", keep="last").view("last")
    a.deduplicate("k", within="10 seconds").view("within")
    with Script(flow, tmp_path) as script:
        script.send("a", at(1, 1, 2), at(1, 2, 4), at(2, 3, 4)).tick()
        script.send("a", at(1, 4, 1), at(1, 5, 11), at(1, 6, 14)).tick()
        script.send("a", at(9, 9, 60)).tick()
        script.tick()
        assert {(r["k"], r["v"]) for r in script.rows("first")} == {(1, 4), (2, 3), (9, 9)}
        assert {(r["k"], r["v"]) for r in script.rows("last")} == {(1, 6), (2, 3), (9, 9)}
        assert [(r["k"], r["v"]) for r in script.rows("within")] == [(1, 4), (2, 3), (1, 5)]


def test_window_functions_in_python(tmp_path: Path) -> None:
    flow, a, _ = two()
    rows = a.key_by("k").over(
        "ts", rows=(1, 0), before=ms.lag("v", default=-1), n=ms.row_number(), pair=ms.sum("v"), place=ms.rank()
    )
    rows.select("k", "v", "before", "n", "pair", "place").view("over")
    a.key_by("k").over("ts", spread=("2 seconds", 0), near=ms.count()).select("v", "near").view("near")
    with Script(flow, tmp_path) as script:
        script.send("a", at(1, 5, 1), at(1, 7, 4)).tick()
        assert shown(script, "over") == Counter({(1, 5, -1, 1, 5, 1): 1, (1, 7, 5, 2, 12, 2): 1})
        script.send("a", at(1, 6, 2)).tick()
        assert shown(script, "over") == Counter(
            {(1, 5, -1, 1, 5, 1): 1, (1, 6, 5, 2, 11, 2): 1, (1, 7, 6, 3, 13, 3): 1}
        ), "a row that comes between moves the others"
        assert shown(script, "near") == Counter({(5, 1): 1, (6, 2): 1, (7, 2): 1})


REFUSED: list[tuple[type[MillstreamError], str, Any]] = [
    (DefinitionError, "cannot be 'outer'", lambda a, b: a.join(b, on="k", how="outer")),
    (DefinitionError, "needs `on` or `where`", lambda a, b: a.join(b)),
    (SchemaError, "there is no column `z`", lambda a, b: a.join(b, on="z")),
    (Unsupported, "never becomes certain", lambda a, b: a.join(b, on="k", how="left", unmatched="certain")),
    (DefinitionError, "unmatched='now'", lambda a, b: a.join(b, on="k", unmatched="now")),
    (DefinitionError, "begins after its end", lambda a, b: a.join(b, on="k", within=("5 seconds", "1 second"))),
    (DefinitionError, "looks forward needs a tolerance", lambda a, b: a.join_as_of(b, on="k", direction="forward")),
    (DefinitionError, "direction='up'", lambda a, b: a.join_as_of(b, on="k", direction="up")),
    (Unsupported, "of the left stream has no watermark", lambda a, b: a.join_as_of(b, on="k", time=("v", "ts"))),
    (SchemaError, "different columns", lambda a, b: a.intersect(b.select("k"))),
    (Unsupported, "no column is an event time", lambda a, b: a.key_by("k").aggregate(n=ms.count()).settled()),
    (SchemaError, "an iteration returns other columns", lambda a, b: a.iterate(lambda r: r.select("k"))),
    (DefinitionError, "does not read its rows", lambda a, b: a.iterate(lambda r: b)),
    (DefinitionError, "most=0", lambda a, b: a.iterate(lambda r: r, most=0)),
    (DefinitionError, "keep='any'", lambda a, b: a.deduplicate("k", keep="any")),
    (Unsupported, "together with `within`", lambda a, b: a.deduplicate("k", keep="last", within="1 second")),
    (DefinitionError, "is not a window function", lambda a, b: a.key_by("k").over("ts", x=ms.median("v"))),
    (
        DefinitionError,
        "`rows` or `spread`",
        lambda a, b: a.key_by("k").over("ts", rows=(1, 0), spread=(1, 0), n=ms.rank()),
    ),
    (DefinitionError, "another stream", lambda a, b: a.join("b", on="k")),
]


@pytest.mark.parametrize(("kind", "said", "build"), REFUSED, ids=[said for _, said, _ in REFUSED])
def test_what_cannot_be_is_refused_while_building(kind: type[MillstreamError], said: str, build: Any) -> None:
    _, a, b = two()
    with pytest.raises(kind, match=said):
        build(a, b)
