"""The kernel of chained stages: transcripts of epochs, and any series of changes held against DuckDB."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.engine.driver.driver import states_of, write_outcome
from millstream.kernels.hashing import hashed
from millstream.kernels.outcome import OperatorClock
from millstream.plan.operators.aggregates.changing_aggregation import ChangingAggregation
from millstream.plan.operators.inputs import Side, Sort, Take
from millstream.plan.operators.measures import bound_measures
from millstream.plan.operators.operator import Operator
from millstream.plan.operators.relations.distinct import DistinctRows
from millstream.plan.operators.relations.top_n import TopN
from millstream.plan.parts import Measure
from millstream.state.compaction import merge
from millstream.state.shard import RunCache
from millstream.state.version import Version
from tests.duck import connected
from tests.kernel_kit import advance, leaving

Row = tuple[Any, ...]
Change = tuple[str, Row]

KINDS = {"k": pa.int64(), "x": pa.int64(), "s": pa.string(), "f": pa.float64(), "e": pa.timestamp("us", tz="UTC")}


def stage(
    what: TopN | ChangingAggregation | DistinctRows,
    columns: str = "kxs",
    keys: str = "k",
    *,
    grows: bool = False,
    **more: Any,
) -> Operator:
    """A bound stage over columns of one letter, as KINDS has them."""
    names = tuple(columns)
    if isinstance(what, ChangingAggregation):
        used = [m for m in what.measures if m.has_argument]
        names = (*keys, *(f"@{m.name}" for m in used))
    types = tuple(KINDS[columns[i]] if n not in KINDS else KINDS[n] for i, n in enumerate(names))
    if isinstance(what, ChangingAggregation):
        kinds = dict(zip(names, types, strict=True))
        what = replace(what, measures=bound_measures("v", what.measures, lambda m: kinds[f"@{m.name}"]))
    by = names if isinstance(what, DistinctRows) else tuple(keys)
    side = Side((Take("in"),), names, (), grows, types=types)
    return replace(what, sides=(side,), keys=by, **more)


def first(count: int, *order: str, rank: str | None = None, columns: str = "kxs") -> TopN:
    """The first rows by columns; one with a minus goes down."""
    sorts = (Sort(o.lstrip("-"), o.startswith("-"), not o.startswith("-")) for o in order)
    return TopN("v", count, tuple(sorts), rank, tuple(columns))


@dataclass
class Held:
    """A stage with its state on disk, and the rows it shows, which every change must fit."""

    spec: Operator
    root: Path
    version: Version = field(default_factory=Version)
    shown: dict[Row, Row] = field(default_factory=dict)
    epoch: int = 0

    def take(
        self, frame: pl.DataFrame | None, before: int = 0, watermark: int = 0, *, begins: bool = False
    ) -> pl.DataFrame | None:
        """Run an epoch over changes."""
        self.epoch += 1
        states = states_of(RunCache(self.root), self.spec, self.version)
        outcome = advance(self.spec, frame, states, OperatorClock(before, watermark, epoch=self.epoch, begins=begins))
        runs = write_outcome(RunCache(self.root), self.spec, outcome, f"{self.epoch:012d}-0")
        for spec in self.spec.states:
            step = self.spec.state_step(spec)
            self.version = self.version.advance(step, [r for r in runs if r.step == step], 0)
        if any(len(self.version.of(self.spec.state_step(s))) > 3 for s in self.spec.states):
            self.compact(watermark)
        if outcome.changes is not None:
            self._apply(outcome.changes)
        return outcome.changes

    def compact(self, watermark: int = 0) -> None:
        """Put all runs together."""
        for spec in self.spec.states:
            step, cache = self.spec.state_step(spec), RunCache(self.root)
            runs, name = self.version.of(step), f"{step}/{self.epoch:012d}-c.arrow"
            expiry = lambda rows: leaving(self.spec, rows)  # noqa: E731
            merged = merge(cache, name, runs, list(spec.unique), expiry, watermark, oldest=True)
            self.version = self.version.replaced(step, runs, [] if merged is None else [merged])

    @property
    def rows(self) -> int:
        """Rows of state that are there."""
        found = [s.scan(0) for s in states_of(RunCache(self.root), self.spec, self.version).values()]
        return sum(len(f.filter(~pl.col("$gone"))) for f in found if f is not None)

    def _apply(self, changes: pl.DataFrame) -> None:
        names = [c for c in changes.columns if c != "$op"]
        places = [names.index(c) for c in self.spec.identity]
        for op, *values in changes.iter_rows():
            row = tuple(values)
            place = tuple(row[i] for i in places)
            if op in ("-D", "-U"):
                assert self.shown.pop(place) == row, "what is taken back was shown"
            else:
                assert place not in self.shown, "no row has the place of another"
                self.shown[place] = row


def frame(spec: Operator, *changes: Change) -> pl.DataFrame:
    """Changes as a stage takes them."""
    columns = {c: [row[i] for _, row in changes] for i, c in enumerate(spec.columns)}
    schema = pa.schema([pa.field(c, t) for c, t in zip(spec.columns, spec.types, strict=True)])
    made = pl.from_arrow(pa.table(columns, schema=schema))
    assert isinstance(made, pl.DataFrame)
    return made.with_columns(pl.Series("$op", [op for op, _ in changes], dtype=pl.String))


def told(changes: pl.DataFrame | None) -> list[Change]:
    """Changes as plain values, without what nobody sees."""
    if changes is None:
        return []
    names = [c for c in changes.columns if not c.startswith("$") and c != "$op"]
    return [(r["$op"], tuple(r[n] for n in names)) for r in changes.to_dicts()]


# ---------------------------------------------------------------- transcripts


def test_a_row_that_comes_first_moves_the_others_down(tmp_path: Path) -> None:
    held = Held(stage(first(2, "-x", rank="r")), tmp_path)
    give = lambda *changes: told(held.take(frame(held.spec, *changes)))  # noqa: E731
    assert give(("+I", (1, 5, "a")), ("+I", (1, 7, "b"))) == [("+I", (1, 7, "b", 1)), ("+I", (1, 5, "a", 2))]
    assert give(("+I", (1, 9, "c"))) == [
        ("-U", (1, 7, "b", 1)),
        ("-U", (1, 5, "a", 2)),
        ("+U", (1, 9, "c", 1)),
        ("+U", (1, 7, "b", 2)),
    ]
    assert give(("-D", (1, 7, "b"))) == [("-U", (1, 7, "b", 2)), ("+U", (1, 5, "a", 2))], "the third comes back"
    assert give(("-D", (1, 9, "c"))) == [
        ("-D", (1, 5, "a", 2)),
        ("-U", (1, 9, "c", 1)),
        ("+U", (1, 5, "a", 1)),
    ]
    assert give(("-D", (1, 5, "a"))) == [("-D", (1, 5, "a", 1))]
    held.compact()
    assert held.rows == 0


def test_without_a_rank_only_rows_that_come_and_go_are_told(tmp_path: Path) -> None:
    held = Held(stage(first(2, "x")), tmp_path)
    give = lambda *changes: told(held.take(frame(held.spec, *changes)))  # noqa: E731
    assert give(("+I", (1, 5, "a")), ("+I", (1, 7, "b"))) == [("+I", (1, 5, "a")), ("+I", (1, 7, "b"))]
    assert give(("+I", (1, 1, "c"))) == [("-D", (1, 7, "b")), ("+I", (1, 1, "c"))]
    assert give(("+I", (1, 1, "c"))) == [("-D", (1, 5, "a")), ("+I", (1, 1, "c"))], "a second copy is a row of its own"
    assert give(("-U", (1, 1, "c")), ("+U", (1, 8, "c"))) == [("-D", (1, 1, "c")), ("+I", (1, 5, "a"))]


def test_one_row_per_key_is_updated_in_place(tmp_path: Path) -> None:
    held = Held(stage(first(1, "-x")), tmp_path)
    assert told(held.take(frame(held.spec, ("+I", (None, 5, "a"))))) == [("+I", (None, 5, "a"))]
    changes = told(held.take(frame(held.spec, ("+I", (None, 6, "a")), ("+I", (2, None, None)))))
    assert changes == [("-U", (None, 5, "a")), ("+I", (2, None, None)), ("+U", (None, 6, "a"))]


def test_nulls_and_ties_go_where_they_are_told_to(tmp_path: Path) -> None:
    rows = [(1, 5, "b"), (1, None, "z"), (1, 5, None), (1, 9, "a")]
    orders = {
        (False, True): ["z", None, "b", "a"],
        (False, False): [None, "b", "a", "z"],
        (True, False): ["a", None, "b", "z"],
        (True, True): ["z", "a", None, "b"],
    }
    for number, ((down, nulls), expected) in enumerate(orders.items()):
        spec = stage(TopN("v", 4, (Sort("x", down, nulls),), "r", ("k", "x", "s")))
        held = Held(spec, tmp_path / str(number))
        changes = told(held.take(frame(spec, *(("+I", r) for r in rows))))
        assert [row[2] for _, row in sorted(changes, key=lambda c: c[1][3])] == expected


def test_of_rows_that_only_grow_no_more_are_kept_than_are_shown(tmp_path: Path) -> None:
    held = Held(stage(first(2, "x"), grows=True), tmp_path)
    for low in (50, 40, 30, 20, 10):
        held.take(frame(held.spec, *(("+I", (k, low + i, "a")) for k in (1, 2) for i in range(9))))
    assert sorted(row[:2] for row in held.shown.values()) == [(1, 10), (1, 11), (2, 10), (2, 11)]
    assert held.rows == 4
    held.take(frame(held.spec, *(("+I", (1, 99, "a")) for _ in range(9))))
    assert held.rows == 4


def test_distinct_counts_copies_only_where_they_can_go_away(tmp_path: Path) -> None:
    changing, growing = (
        Held(stage(DistinctRows("v")), tmp_path / "a"),
        Held(stage(DistinctRows("v"), grows=True), tmp_path / "b"),
    )
    twice = frame(changing.spec, ("+I", (1, None, "a")), ("+I", (1, None, "a")))
    assert told(changing.take(twice)) == told(growing.take(twice)) == [("+I", (1, None, "a"))]
    files = len(growing.version.of("v"))
    assert told(growing.take(twice)) == []
    assert len(growing.version.of("v")) == files, "nothing new to keep"
    assert told(changing.take(frame(changing.spec, ("-D", (1, None, "a"))))) == []
    assert told(changing.take(frame(changing.spec, ("-U", (1, None, "a")), ("+U", (2, 1, "a"))))) == [
        ("-D", (1, None, "a")),
        ("+I", (2, 1, "a")),
    ]


def test_a_group_without_rows_leaves_and_one_without_changes_says_nothing(tmp_path: Path) -> None:
    spec = stage(ChangingAggregation("v", (Measure("n", "count", False), Measure("t", "sum", True))), "kx", "k")
    held = Held(spec, tmp_path)
    came = told(held.take(frame(spec, ("+I", (1, 5)), ("+I", (1, 5)), ("+I", (2, None)))))
    assert sorted(came) == [("+I", (1, 2, 10)), ("+I", (2, 1, None))]
    assert told(held.take(frame(spec, ("-U", (1, 5)), ("+U", (1, 5))))) == []
    assert told(held.take(frame(spec, ("-D", (2, None)), ("-D", (1, 5))))).count(("-D", (2, 1, None))) == 1
    assert list(held.shown.values()) == [(1, 1, 5)]


def test_a_row_that_was_never_held_can_be_taken_back(tmp_path: Path) -> None:
    spec = stage(ChangingAggregation("v", (Measure("n", "count", False),)), "k", "k")
    held = Held(spec, tmp_path)
    held.take(frame(spec, ("-U", (1,)), ("+U", (2,))))
    assert list(held.shown.values()) == [(2, 1)]
    held.take(frame(spec, ("+I", (1,))))
    assert sorted(held.shown.values()) == [(1, 1), (2, 1)]


def test_groups_of_a_window_that_is_over_are_forgotten_and_their_rows_stay_shown(tmp_path: Path) -> None:
    spec = stage(first(1, "-x", columns="ex"), "ex", "e", ends=("e", 10))
    held = Held(spec, tmp_path)
    held.take(frame(spec, ("+I", (100, 1)), ("+I", (200, 2))), 0, 90)
    held.take(frame(spec, ("+I", (100, 5))), 90, 110)
    assert sorted(r[1] for r in held.shown.values()) == [2, 5]
    held.compact(110)
    assert held.rows == 1


def test_rows_with_arrays_are_told_apart(tmp_path: Path) -> None:
    given = stage(first(2, "x", columns="kxs"))
    spec = replace(given, sides=(replace(given.sides[0], types=(pa.int64(), pa.int64(), pa.list_(pa.string()))),))
    held = Held(spec, tmp_path)
    held.take(frame(spec, ("+I", (1, 1, ["a"])), ("+I", (1, 1, ["b"])), ("+I", (1, 1, None))))
    held.take(frame(spec, ("-D", (1, 1, ["a"])), ("-D", (1, 1, None))))
    assert [row[:3] for row in held.shown.values()] == [(1, 1, ["b"])]


_TOTALS = (Measure("n", "count", False), Measure("t", "sum", True), Measure("d", "count_distinct", True))


def test_append_only_rows_are_kept_as_one_row_of_partials_per_key(tmp_path: Path) -> None:
    spec = stage(ChangingAggregation("v", _TOTALS), "kxx", "k", grows=True)
    held = Held(spec, tmp_path)
    for epoch in range(5):
        held.take(frame(spec, *(("+I", (k, epoch, epoch % 2)) for k in (1, 2) for _ in range(10))))
    assert sorted(held.shown.values()) == [(1, 50, 100, 2), (2, 50, 100, 2)]
    assert held.rows == 2


@pytest.mark.parametrize("keys", ["k", ""])
def test_rows_that_an_earlier_version_kept_become_partials_key_by_key(tmp_path: Path, keys: str) -> None:
    columns = "kxx" if keys else "xx"
    spec = stage(ChangingAggregation("v", _TOTALS), columns, keys, grows=True)
    before = replace(spec, ttl=2**60)  # with a time to live, rows are kept
    assert spec.uses_partials and not before.uses_partials
    held = Held(before, tmp_path)
    rows = [((k, x, x % 3) if keys else (x, x % 3)) for k in (1, 2) for x in range(6)]
    held.take(frame(spec, *(("+I", r) for r in rows)))
    many = held.rows
    held.spec = spec
    more = [((1, 9, 1) if keys else (9, 1))]
    held.take(frame(spec, *(("+I", r) for r in more)))
    expected = [(1, 7, 24, 3), (2, 6, 15, 3)] if keys else [(13, 39, 3)]
    assert sorted(held.shown.values()) == expected
    assert held.rows < many, "the rows of the touched key are forgotten"
    held.take(frame(spec, ("+I", (2, 1, 0) if keys else (1, 0))))
    assert held.rows == (2 if keys else 1)
    assert sorted(held.shown.values()) == ([(1, 7, 24, 3), (2, 7, 16, 3)] if keys else [(14, 40, 3)])


def test_an_append_only_aggregate_of_all_rows_answers_before_the_first_row(tmp_path: Path) -> None:
    spec = stage(ChangingAggregation("v", _TOTALS), "xx", "", grows=True)
    held = Held(spec, tmp_path)
    held.take(None, begins=True)
    assert list(held.shown.values()) == [(0, None, 0)]
    held.take(frame(spec, ("+I", (4, 1)), ("+I", (5, 1))))
    assert list(held.shown.values()) == [(2, 9, 1)] and held.rows == 1


def test_keys_are_equal_as_values_are(tmp_path: Path) -> None:
    spec = stage(ChangingAggregation("v", (Measure("n", "count", False),)), "f", "f")
    held = Held(spec, tmp_path)
    nan = float("nan")
    held.take(frame(spec, *(("+I", (v,)) for v in (0.0, -0.0, nan, -nan, None, 1.5))))
    assert sorted((str(f), n) for f, n in held.shown.values()) == [("0.0", 2), ("1.5", 1), ("None", 1), ("nan", 2)]


def test_a_hash_is_the_same_in_every_version() -> None:
    """State is found by it: where this fails, state of earlier versions is lost."""
    rows = pl.DataFrame(
        {"i": [1, None], "s": ["ä", None], "f": [-0.0, float("nan")], "b": [True, None], "l": [[1, 2], None]}
    )
    one, other = hashed(rows, ["i", "s", "f", "b", "l"])
    assert one.tolist() == [-7639584267502536816, 6047922959823575864]
    assert len({*one.tolist(), *other.tolist()}) == 4
    swapped, _ = hashed(pl.DataFrame({"a": [1, 2], "b": [2, 1]}), ["a", "b"])
    assert swapped[0] != swapped[1]


# ---------------------------------------------------------------- any changes, any chain


@dataclass(frozen=True)
class Differential:
    """A stage over (k, x, s) that gives (k, x, s) again, and the same in SQL."""

    spec: Operator
    gives: dict[str, str]
    sql: str


_RANKED = "row_number() OVER (PARTITION BY k ORDER BY x DESC NULLS LAST, k NULLS FIRST, s NULLS FIRST)"
_COUNTS = (
    Measure("n", "count", False),
    Measure("t", "sum", True),
    Measure("d", "count_distinct", True),
    Measure("lo", "min", True),
)
OPERATORS = {
    "top": Differential(
        stage(first(2, "-x")),
        {"k": "k", "x": "x", "s": "s"},
        f"SELECT k, x, s FROM (SELECT *, {_RANKED} AS r FROM ({{}})) WHERE r <= 2",
    ),
    "rank": Differential(
        stage(first(3, "-x", rank="r")),
        {"k": "k", "x": "r", "s": "s"},
        f"SELECT k, r AS x, s FROM (SELECT *, {_RANKED} AS r FROM ({{}})) WHERE r <= 3",
    ),
    "latest": Differential(
        stage(first(1, "-x"), keys="s"),
        {"k": "x", "x": "k", "s": "s"},
        f"SELECT x AS k, k AS x, s FROM (SELECT *, {_RANKED.replace('BY k', 'BY s')} AS r FROM ({{}})) WHERE r = 1",
    ),
    "aggregate": Differential(
        stage(ChangingAggregation("v", _COUNTS), "kxxs", "k"),
        {"k": "d", "x": "t", "s": "lo"},
        "SELECT count(DISTINCT x) AS k, sum(x) AS x, min(s) AS s FROM ({}) GROUP BY k",
    ),
    "whole": Differential(
        stage(
            ChangingAggregation(
                "v", (Measure("n", "count", False), Measure("hi", "max", True), Measure("z", "max", True))
            ),
            "xs",
            "",
        ),
        {"k": "n", "x": "hi", "s": "z"},
        "SELECT count(*) AS k, max(x) AS x, max(s) AS s FROM ({}) HAVING count(*) > 0",
    ),
    "distinct": Differential(
        stage(DistinctRows("v")), {"k": "k", "x": "x", "s": "s"}, "SELECT DISTINCT k, x, s FROM ({})"
    ),
}
_ARGUMENTS = {"aggregate": {"@t": "x", "@d": "x", "@lo": "s"}, "whole": {"@hi": "x", "@z": "s"}}

values = st.tuples(
    st.one_of(st.none(), st.integers(0, 2)),
    st.one_of(st.none(), st.integers(0, 4)),
    st.one_of(st.none(), st.sampled_from("ab")),
)
epochs = st.lists(
    st.tuples(st.lists(values, max_size=6), st.lists(st.integers(0, 99), max_size=4)), min_size=1, max_size=4
)


def through(name: str, held: Held, changes: pl.DataFrame | None) -> pl.DataFrame | None:
    """One stage of a chain."""
    taken = _ARGUMENTS.get(name, {})
    given = None
    if changes is not None:
        given = changes.select("$op", *(pl.col(taken.get(c, c)).alias(c) for c in held.spec.columns))
    found = held.take(given)
    if found is None:
        return None
    return found.select("$op", *(pl.col(c).alias(n) for n, c in OPERATORS[name].gives.items()))


@settings(max_examples=30)
@given(
    names=st.lists(st.sampled_from(sorted(OPERATORS)), min_size=1, max_size=3),
    series=epochs,
    only_growing=st.booleans(),
)
def test_a_chain_over_any_changes_shows_what_a_batch_over_the_present_rows_gives(
    names: list[str], series: list[tuple[list[Row], list[int]]], only_growing: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder, connected() as batch:
        chain, grows = [], only_growing
        for i, name in enumerate(names):
            spec = OPERATORS[name].spec
            spec = replace(spec, sides=(replace(spec.sides[0], append_only=grows),))
            grows = spec.append_only
            chain.append((name, Held(spec, Path(folder) / str(i))))
        sql = "SELECT * FROM present"
        for name in names:
            sql = OPERATORS[name].sql.format(sql)
        batch.execute("CREATE TABLE present (k BIGINT, x BIGINT, s VARCHAR)")
        present: list[Row] = []
        shown: Counter[Row] = Counter()
        for come, picks in series:
            goes = [present.pop(p % len(present)) for p in picks if present and not only_growing]
            present += come
            made = [("-D", r) for r in goes] + [("+I", r) for r in come]
            changes: pl.DataFrame | None = frame(OPERATORS["top"].spec, *made) if made else None
            for name, held in chain:
                changes = through(name, held, changes)
            for op, row in told(changes):
                shown[row] += 1 if op in ("+I", "+U") else -1
            batch.execute("DELETE FROM present")
            if present:
                batch.executemany("INSERT INTO present VALUES (?, ?, ?)", [list(r) for r in present])
            expected = Counter(tuple(r) for r in batch.execute(sql).fetchall())
            assert min(shown.values(), default=0) >= 0
            assert +shown == expected


@pytest.mark.parametrize("kind", ["sum", "avg", "min", "max", "count", "count_distinct", "variance", "stddev"])
def test_an_aggregate_of_present_rows_is_the_one_of_a_plain_aggregate(tmp_path: Path, kind: str) -> None:
    spec = stage(ChangingAggregation("v", (Measure("m", kind, True),)), "kf", "k")
    held = Held(spec, tmp_path)
    rows = [(i % 2, None if i % 5 == 0 else i / 7) for i in range(20)]
    held.take(frame(spec, *(("+I", r) for r in rows)))
    held.take(frame(spec, *(("-D", r) for r in rows[::3])))
    there = [r for i, r in enumerate(rows) if i % 3]
    sql = {"variance": "var_samp", "stddev": "stddev_samp", "count_distinct": "count(DISTINCT f"}.get(kind, kind)
    with connected() as batch:
        batch.execute("CREATE TABLE t (k BIGINT, f DOUBLE)")
        batch.executemany("INSERT INTO t VALUES (?, ?)", [list(r) for r in there])
        call = f"{sql})" if "(" in sql else f"{sql}(f)"
        expected = dict(batch.execute(f"SELECT k, {call} FROM t GROUP BY k").fetchall())
    assert {k: m for k, m in held.shown.values()} == {k: pytest.approx(m, rel=1e-12) for k, m in expected.items()}
