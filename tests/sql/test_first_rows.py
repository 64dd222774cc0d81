"""A join whose only reader is a top-N emits the pairs that this reader can use, and the views stay the same."""

from __future__ import annotations

import random

import polars as pl
import pytest

from millstream.kernels.changes import first_of_each
from millstream.kernels.relations import join
from millstream.kernels.relations.top_n import shrink
from millstream.plan import planner
from millstream.plan.explain.plan_tree import explain, text
from millstream.plan.operators.inputs import FirstRows, Sort
from millstream.plan.operators.relations.join import Join
from millstream.plan.operators.relations.top_n import TopN
from millstream.plan.planner import plan
from millstream.plan.rules.first_rows import first_rows
from tests.sql import test_relations
from tests.sql.test_relations import check, flow_of, sql_of

CUT = [
    ["inner", "top"],
    ["residual", "limit"],
    ["self", "qualify_only"],
    ["three", "distinct_on"],
    ["where", "inner", "qualify_only"],
    ["distinct", "inner", "top"],
]
"""Joins that emit first pairs only, with their readers."""
WHOLE = [
    ["inner", "where", "top"],
    ["inner", "project", "top"],
    ["semi", "top"],
    ["left", "top"],
    ["inner", "aggregate"],
    ["aggregate", "inner", "top"],
]
"""A condition or a computed order lies between, rows are retracted, or the reader is another operator."""
TOP = "SELECT k, v, s FROM {} x QUALIFY row_number() OVER (PARTITION BY s ORDER BY v, k DESC NULLS FIRST) <= 2"


@pytest.fixture(autouse=True)
def _one_more_top(monkeypatch: pytest.MonkeyPatch) -> None:
    for operators in (test_relations.OPERATORS, test_relations.BATCH):
        monkeypatch.setitem(operators, "qualify_only", TOP)


def cuts(sql: str) -> list[FirstRows]:
    planned = plan(flow_of({"v": sql}))
    return [v.operator.first for v in planned.views if isinstance(v.operator, Join) and v.operator.first is not None]


@pytest.mark.sampled(len(CUT))
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("chain", CUT, ids=" ".join)
def test_first_pairs_give_what_a_batch_gives(chain: list[str], seed: int) -> None:
    assert len(cuts(sql_of(chain))) == 1
    check({"v": chain}, seed, epochs=4, most=12, shards=(1, 3, 7))


@pytest.mark.parametrize("chain", WHOLE, ids=" ".join)
def test_a_join_emits_all_pairs_where_its_reader_may_need_them(chain: list[str]) -> None:
    assert cuts(sql_of(chain)) == []


def test_a_join_with_two_readers_emits_all_pairs() -> None:
    top = TOP.replace("{}", "j")
    assert cuts(f"WITH j AS ({sql_of(['inner'])}) SELECT * FROM ({top}) z UNION ALL SELECT k, v, s FROM j") == []


def test_a_join_emits_all_pairs_where_an_expression_may_fail_on_the_first() -> None:
    joined = "SELECT x.k, y.v, 10 / y.v AS w FROM a x JOIN b y ON x.k = y.k"
    first = "QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) = 1"
    assert cuts(f"SELECT k, v, w FROM ({joined}) z {first}") == []
    assert len(cuts(f"SELECT k, v, w FROM ({joined.replace('10 / y.v', 'y.s')}) z {first}")) == 1


def test_the_kernel_puts_fewer_pairs_together_and_the_view_stays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    emitted: list[int] = []
    paired = join._paired

    def counting(operator: Join, rows: list[pl.DataFrame], pairs: pl.DataFrame) -> pl.DataFrame:
        emitted[-1] += len(pairs)
        return paired(operator, rows, pairs)

    monkeypatch.setattr(join, "_paired", counting)
    for rules in (planner.RULES, tuple(r for r in planner.RULES if r is not first_rows)):
        monkeypatch.setattr(planner, "RULES", rules)
        emitted.append(0)
        check({"v": ["inner", "top"]}, seed=5, epochs=3, most=20, shards=(1,))
    assert 0 < emitted[0] < emitted[1] / 2


def test_explain_says_which_pairs_a_join_emits() -> None:
    shown = text(explain(plan(flow_of({"v": sql_of(["inner", "top"]), "w": sql_of(["inner", "limit"])}))))
    assert "emits   in each epoch the first 2 per k, by _of_1_v DESC, s, k, and ties" in shown
    assert "in each epoch the first 3, by" in shown


@pytest.mark.parametrize("seed", range(20))
def test_rows_equal_to_the_last_of_the_first_are_among_them(seed: int) -> None:
    chance = random.Random(seed)
    keys, count = chance.choice([("k",), (), ("k", "l")]), chance.randrange(1, 4)
    order = tuple(Sort(c, chance.random() < 0.5, chance.random() < 0.5) for c in chance.sample("vwk", 2))
    some = chance.choice([[None, 0, 1, 1, 2], [None, 0.0, -0.0, 1.5, 2.0]])
    rows = [{c: chance.choice(some) for c in "klvw"} for _ in range(chance.randrange(1, 40))]
    frame = pl.DataFrame(rows, schema=dict.fromkeys("klvw", pl.Int64 if 1 in some else pl.Float64))
    kept = first_of_each(frame, FirstRows(keys, order, count)).to_list()

    def place(row: dict[str, int | None]) -> list[tuple[bool, int]]:
        found = []
        for s in order:
            value = row[s.column]
            found.append(
                ((value is None) is not s.nulls_first, 0 if value is None else -value if s.descending else value)
            )
        return found

    for row, is_kept in zip(rows, kept, strict=True):
        better = [o for o in rows if all(o[k] == row[k] for k in keys) and place(o) < place(row)]
        assert is_kept is (len(better) < count)


@pytest.mark.parametrize("seed", range(20))
def test_what_a_top_n_keeps_of_floats_is_among_the_first(seed: int) -> None:
    chance = random.Random(seed)
    values = [None, float("nan"), float("inf"), 0.0, -0.0, 1.5]
    rows = [{"$at": n, **{c: chance.choice(values) for c in "kvw"}} for n in range(chance.randrange(1, 30))]
    frame = pl.DataFrame(rows, schema={"$at": pl.Int64, **dict.fromkeys("kvw", pl.Float64)})
    order = tuple(Sort(c, chance.random() < 0.5, chance.random() < 0.5) for c in "vw"[: chance.randrange(1, 3)])
    operator = TopN("v", chance.randrange(1, 4), order, None, ("$at", "k", "v", "w"), keys=("k",))
    shown = set(shrink(operator, frame)["$at"].to_list())
    kept = set(frame.filter(first_of_each(frame, FirstRows(("k",), order, operator.count)))["$at"].to_list())
    assert shown <= kept
