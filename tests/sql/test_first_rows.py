"""A join whose only reader is a top-N emits the pairs that this reader can use, and the views stay the same."""

from __future__ import annotations

import random

import polars as pl
import pytest

from millstream.kernels.changes import first_of_each
from millstream.plan.operators.inputs import FirstRows, Sort
from millstream.plan.operators.relations.join import Join
from millstream.plan.planner import plan
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
    ["left", "top"],
    ["inner", "aggregate"],
    ["aggregate", "inner", "top"],
]
"""A condition or a computed order lies between, rows are retracted, or the reader is another operator."""
TOP = "SELECT k, v, s FROM {} x QUALIFY row_number() OVER (PARTITION BY s ORDER BY v, k DESC NULLS FIRST) <= 2"


@pytest.fixture(autouse=True)
def _one_more_top(monkeypatch: pytest.MonkeyPatch) -> None:
    for operators in ("OPERATORS", "BATCH"):
        monkeypatch.setitem(
            getattr(__import__("tests.sql.test_relations", fromlist=["x"]), operators), "qualify_only", TOP
        )


def cuts(chain: list[str]) -> list[FirstRows]:
    planned = plan(flow_of({"v": sql_of(chain)}))
    return [v.operator.first for v in planned.views if isinstance(v.operator, Join) and v.operator.first is not None]


@pytest.mark.sampled(len(CUT))
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("chain", CUT, ids=" ".join)
def test_first_pairs_give_what_a_batch_gives(chain: list[str], seed: int) -> None:
    assert len(cuts(chain)) == 1
    check({"v": chain}, seed, epochs=4, most=12, shards=(1, 3, 7))


@pytest.mark.parametrize("chain", WHOLE, ids=" ".join)
def test_a_join_emits_all_pairs_where_its_reader_may_need_them(chain: list[str]) -> None:
    assert cuts(chain) == []


def test_a_join_with_two_readers_emits_all_pairs() -> None:
    both = f"WITH j AS ({sql_of(['inner'])}) SELECT * FROM ({TOP.replace('{}', 'j')}) z UNION ALL SELECT k, v, s FROM j"
    planned = plan(flow_of({"v": both}))
    assert [v for v in planned.views if isinstance(v.operator, Join) and v.operator.first is not None] == []


@pytest.mark.parametrize("seed", range(20))
def test_rows_equal_to_the_last_of_the_first_are_among_them(seed: int) -> None:
    chance = random.Random(seed)
    keys, count = chance.choice([("k",), (), ("k", "l")]), chance.randrange(1, 4)
    order = tuple(Sort(c, chance.random() < 0.5, chance.random() < 0.5) for c in chance.sample("vwk", 2))
    some = [None, 0, 1, 1, 2]
    rows = [{c: chance.choice(some) for c in "klvw"} for _ in range(chance.randrange(1, 40))]
    frame = pl.DataFrame(rows, schema=dict.fromkeys("klvw", pl.Int64))
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
