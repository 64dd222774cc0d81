"""Unions of numbers whose widths only the engine knows: they become the widest, and views are what a batch gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.engine.binding.union_types import common
from millstream.errors import SchemaError
from tests.duck import connected
from tests.sql.test_relations import KINDS, Script, flow_of, multiset, row

INT, BIG, DOUBLE = "CAST(k AS INT)", "pmod(v, 3)", "pmod(CAST(v AS DOUBLE), 2)"
"""An expression whose type SQL knows, and two whose types it does not."""
ROWS = {
    "later": f"SELECT {INT} AS k, {BIG} AS v, s FROM a UNION ALL SELECT {BIG}, {INT}, s FROM b",
    "double": f"SELECT {INT} AS k, v, s FROM a UNION ALL SELECT {DOUBLE}, {INT}, s FROM b",
    "three": f"SELECT {INT} AS k, v, s FROM a UNION ALL SELECT {BIG}, v, s FROM b "
    f"UNION ALL SELECT {DOUBLE}, k, s FROM c",
    "tiny": f"SELECT CAST(k AS TINYINT) AS k, v, s FROM a UNION ALL SELECT {BIG}, {INT}, s FROM a WHERE v > 1",
    "counts": f"SELECT CAST(count(*) AS INT) AS k, sum({INT}) AS v, s FROM a GROUP BY s "
    f"UNION ALL SELECT {BIG}, k, s FROM b",
    "behind": f"SELECT k, {BIG} AS v, s FROM (SELECT DISTINCT k, v, s FROM a) x UNION ALL SELECT k, CAST(n AS INT), s "
    "FROM (SELECT s, k, count(*) AS n FROM b GROUP BY s, k) y",
}
USES = {
    "rows": "SELECT k, v, s FROM ({}) x",
    "groups": "SELECT k, sum(v) AS v, max(s) AS s FROM ({}) x GROUP BY k",
    "mean": "SELECT s, count(DISTINCT k) AS v, avg(k) AS k FROM ({}) x GROUP BY s",
    "once": "SELECT DISTINCT k, v, s FROM ({}) x",
    "join": "SELECT x.k, y.v, x.s FROM ({}) x JOIN c y ON CAST(x.k AS BIGINT) = y.k",
    "first": "SELECT k, v, s FROM (SELECT DISTINCT k, v, s FROM ({}) d) x "
    "QUALIFY row_number() OVER (PARTITION BY s ORDER BY k, v) <= 2",
}
SETS = {
    f"{kind} {of}": f"SELECT {INT} AS k, {of} AS v, s FROM a {kind} SELECT {BIG}, {INT}, s FROM b"
    for kind in ("UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")
    for of in (BIG, DOUBLE)
}


def follow(folder: Path, views: dict[str, str], seed: int) -> None:
    """Run views over random epochs, with a crash between them, and hold each against DuckDB after each epoch."""
    chance = random.Random(seed)
    sent: dict[str, list[dict[str, Any]]] = {n: [] for n in "abc"}
    with connected(as_spark=True) as batch, Script(flow_of(views), folder, shards=chance.choice([1, 3])) as script:
        batch.execute("CREATE MACRO pmod(a, b) AS ((a % b) + b) % b")
        for number in range(2):
            for name, rows in sent.items():
                come = [row(chance) for _ in range(chance.randrange(1, 6))]
                rows += come
                script.send(name, *come)
            script.tick()
            for name, rows in sent.items():
                columns = {c: [r[c] for r in rows] for c in KINDS} | {"ts": [r["ts"] * 1_000_000 for r in rows]}
                batch.register(name, pa.table(columns, schema=pa.schema(list(KINDS.items()))))
            for name, sql in views.items():
                found = multiset(r.values() for r in script.rows(name))
                assert found == multiset(batch.execute(sql).fetchall()), (sql, sent)
            if number == 0:
                script.crash()
                script.resume(shards=chance.choice([1, 3]))


@pytest.mark.parametrize(
    ("rows", "uses"), [(ROWS, ["rows", "groups"]), (["later", "counts"], ["mean", "once", "join", "first"])]
)
def test_numbers_of_a_union_become_the_widest(rows: list[str], uses: list[str], tmp_path: Path) -> None:
    follow(tmp_path, {f"{use}_{name}": USES[use].format(ROWS[name]) for name in rows for use in uses}, seed=3)


def test_numbers_of_set_operations_become_the_widest(tmp_path: Path) -> None:
    follow(tmp_path, {f"v{i}": sql for i, sql in enumerate(SETS.values())}, seed=4)


@pytest.mark.parametrize(
    ("kinds", "wide"),
    [
        ([pa.int8(), pa.int32()], pa.int32()),
        ([pa.int64(), pa.float64(), pa.int16()], pa.float64()),
        ([pa.null(), pa.string()], pa.string()),
        ([pa.null(), pa.null()], pa.null()),
        ([pa.null(), pa.int32(), pa.int64()], pa.int64()),
        ([pa.decimal128(2, 1), pa.decimal128(4, 2)], pa.decimal128(4, 2)),
        ([pa.decimal128(3, 0), pa.decimal128(4, 3)], pa.decimal128(6, 3)),
        ([pa.decimal128(2, 1), pa.int32()], pa.decimal128(11, 1)),
        ([pa.decimal128(2, 1), pa.float32(), pa.int64()], pa.float64()),
        ([pa.decimal128(38, 20), pa.int64()], None),
        ([pa.decimal128(2, 1), pa.string()], None),
        ([pa.int32(), pa.bool_()], None),
        ([pa.list_(pa.int32()), pa.list_(pa.int64())], None),
    ],
)
def test_the_type_of_a_union_is_the_widest_of_its_parts(kinds: list[pa.DataType], wide: pa.DataType | None) -> None:
    assert common(kinds) == common(kinds[::-1]) == wide


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT {BIG} AS k FROM a UNION ALL SELECT s FROM b",
        f"SELECT k FROM (SELECT {BIG} AS k FROM a UNION ALL SELECT s FROM b) x GROUP BY k",
        f"SELECT count(*) AS n, s AS k FROM a GROUP BY s UNION ALL SELECT k, {BIG} FROM b",
    ],
)
def test_other_types_of_a_union_are_refused(sql: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"`k` of `v.*` has different types in the streams of a union"):
        Script(flow_of({"v": sql}), tmp_path)


def test_a_column_that_is_null_in_all_rows_has_to_say_its_type(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="the column `v` of `x` is NULL in all rows and has no type") as refused:
        Script(flow_of({"x": "SELECT k, NULL AS v, s FROM a"}), tmp_path)
    assert "CAST(NULL AS STRING) AS v" in str(refused.value)
