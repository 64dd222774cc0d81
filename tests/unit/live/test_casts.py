"""CAST means the same in a question and in INSERT as in a view: what Spark makes of it. The answers are Spark's own
(`tests/spark/test_casts.py` asks it for them again).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import MillstreamError
from tests.unit.live.world import Spoken, opened

CASTS: list[tuple[str, str, Any]] = [
    ("1.7", "INT", 1),
    ("-1.7", "BIGINT", -1),
    ("0.5", "TINYINT", 0),
    ("2.5D", "INT", 2),
    ("-2.5D", "INT", -2),
    ("1.7D", "BIGINT", 1),
    ("float(1.7)", "INT", 1),
    ("123456789012.999", "BIGINT", 123456789012),
    ("9.99D + 0", "SMALLINT", 9),
    ("' +12 '", "INT", 12),
    ("'-12'", "BIGINT", -12),
    ("true", "INT", 1),
    ("false", "DECIMAL(5, 2)", Decimal("0.00")),
    ("timestamp'1969-12-31 23:59:59.5'", "BIGINT", -1),
    ("timestamp'2026-01-01 12:00:00.123456'", "DOUBLE", 1767268800.123456),
    ("timestamp'2026-01-01 12:00:00.5'", "DECIMAL(38, 10)", Decimal("1767268800.5000000000")),
    ("timestamp'2026-01-01 12:00:00.5'", "STRING", "2026-01-01 12:00:00.5"),
    ("timestamp'2026-01-01 12:00:00'", "STRING", "2026-01-01 12:00:00"),
    ("date'2026-01-01'", "STRING", "2026-01-01"),
    ("true", "STRING", "true"),
    ("1.50", "STRING", "1.50"),
    ("1.5D", "STRING", "1.5"),
    ("1e7D", "STRING", "1.0E7"),
    ("-1e10D", "STRING", "-1.0E10"),
    ("1e20D", "STRING", "1.0E20"),
    ("1.23456789012345E8D", "STRING", "1.23456789012345E8"),
    ("1234567.5D", "STRING", "1234567.5"),
    ("0.001D", "STRING", "0.001"),
    ("0.0005D", "STRING", "5.0E-4"),
    ("-0.00012345D", "STRING", "-1.2345E-4"),
    ("1e-5D", "STRING", "1.0E-5"),
    ("100.0D", "STRING", "100.0"),
    ("-0.0D", "STRING", "-0.0"),
    ("double('NaN')", "STRING", "NaN"),
    ("double('-inf')", "STRING", "-Infinity"),
    ("float(1e10)", "STRING", "1.0E10"),
    ("1.23456789012345E8D", "DECIMAL(38, 10)", Decimal("123456789.0123450000")),
    ("float(0.1)", "DECIMAL(38, 10)", Decimal("0.1000000015")),
    ("1.7", "DECIMAL", Decimal(2)),
    ("interval '1 02:03:04.5' day to second", "STRING", "INTERVAL '1 02:03:04.5' DAY TO SECOND"),
    ("interval '-1 00:00:01.5' day to second", "BIGINT", -86401),
    ("interval '0 00:00:01.5' day to second", "DECIMAL(10, 3)", Decimal("1.500")),
    ("'1 00:00:01'", "INTERVAL DAY TO SECOND", timedelta(days=1, seconds=1)),
    ("timestamp_ntz'2026-01-01 12:00:00.5'", "STRING", "2026-01-01 12:00:00.5"),
    ("timestamp_ntz'2026-01-01 12:00:00'", "DATE", date(2026, 1, 1)),
    ("timestamp'2026-01-01 12:00:00'", "TIMESTAMP_NTZ", datetime(2026, 1, 1, 12)),  # noqa: DTZ001
    ("date'2026-01-01'", "TIMESTAMP_NTZ", datetime(2026, 1, 1)),  # noqa: DTZ001
    ("'2026-01-01 12:00:00'", "TIMESTAMP_NTZ", datetime(2026, 1, 1, 12)),  # noqa: DTZ001
]
REFUSED = [
    ("'1.7'", "INT"),
    ("'1e3'", "BIGINT"),
    ("'0x10'", "INT"),
    ("'1_000'", "INT"),
    ("'1_000'", "DOUBLE"),
    ("'1_000'", "DECIMAL(9, 2)"),
    ("'.5'", "INT"),
    ("''", "INT"),
    ("300.5", "TINYINT"),
    ("1e20D", "BIGINT"),
    ("double('NaN')", "INT"),
]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoken]:
    with opened(Path(tmp_path_factory.mktemp("casts")) / "home") as spoken:
        spoken.say("CREATE TABLE t (a DOUBLE)", "INSERT INTO t VALUES (1.7), (-1.7), (1e10), (NULL)")
        yield spoken


def test_a_question_casts_as_spark_does(one: Spoken) -> None:
    asked = ", ".join(f"cast({value} AS {kind}) AS c{i}" for i, (value, kind, _) in enumerate(CASTS))
    (found,) = one.rows(f"SELECT {asked}")
    wrong = [(c, f) for c, f in zip(CASTS, found.values(), strict=True) if c[2] != f or type(c[2]) is not type(f)]
    assert not wrong


@pytest.mark.parametrize(("value", "kind"), REFUSED)
def test_what_spark_refuses_is_refused_and_try_cast_gives_null(one: Spoken, value: str, kind: str) -> None:
    with pytest.raises(MillstreamError):
        one.say(f"SELECT cast({value} AS {kind})")
    assert list(one.rows(f"SELECT try_cast({value} AS {kind}) AS x")[0].values()) == [None]


def test_columns_aggregates_groups_and_lambdas_are_cast_alike(one: Spoken) -> None:
    assert [r["x"] for r in one.rows("SELECT cast(a AS BIGINT) AS x FROM t ORDER BY a NULLS LAST")] == [
        -1, 1, 10**10, None]  # fmt: skip
    assert one.rows("SELECT cast(max(a) AS STRING) AS x FROM t WHERE a < 5") == [{"x": "1.7"}]
    grouped = (
        "SELECT cast(a + 0.1 AS INT) AS x, count(*) AS n FROM t WHERE a < 5 GROUP BY cast(a + 0.1 AS INT) ORDER BY x"
    )
    assert one.rows(grouped) == [{"x": -1, "n": 1}, {"x": 1, "n": 1}]
    assert one.rows("SELECT transform(array(1.7, -0.2), v -> cast(v AS INT)) AS x") == [{"x": [1, 0]}]
    assert one.rows("SELECT cast((SELECT min(a) FROM t) AS INT) AS x") == [{"x": -1}]


def test_insert_and_update_cast_alike(one: Spoken) -> None:
    one.say("CREATE TABLE u (a BIGINT, s STRING)", "INSERT INTO u VALUES (cast(1.7 AS BIGINT), cast(1e10D AS STRING))")
    one.say("UPDATE u SET a = cast(-1.9D AS BIGINT)")
    assert one.rows("SELECT * FROM u") == [{"a": -1, "s": "1.0E10"}]


def test_casts_inside_one_another_make_no_endless_text(one: Spoken) -> None:
    value = "1.5"
    for i in range(8):
        value = f"concat(cast({value} AS {'STRING' if i % 2 else 'INT'}))"
    assert len(one.rows(f"SELECT {value} AS x")) == 1
