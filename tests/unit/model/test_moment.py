"""A condition with now() holds for a row exactly in the span that is computed from it; others are refused."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime, timedelta

import duckdb
import pytest

import millstream as ms
from millstream.errors import MillstreamError, SchemaError, Unsupported
from millstream.model.expression import boolean
from millstream.model.steps.relations.temporal_filter import Temporal
from millstream.model.steps.temporal_conditions import spans
from millstream.model.types.schema import Schema
from tests.local import _duck

START = datetime(2026, 3, 1, 22, 30, tzinfo=UTC)
SCHEMA = Schema.parse(
    "id BIGINT, ts TIMESTAMP, until_ TIMESTAMP, d DATE, n TIMESTAMP_NTZ, s STRING, m MAP<STRING, INT>"
)

CONDITIONS = [
    "ts > now()",
    "ts >= now()",
    "ts < current_timestamp",
    "ts <= current_timestamp()",
    "now() = ts",
    "n > localtimestamp() - INTERVAL '1' HOUR",
    "n <= now() AND CAST(n AS DATE) = current_date",
    "ts > now() - INTERVAL '1' HOUR",
    "ts + INTERVAL '90' MINUTES <= INTERVAL '1' HOUR + now()",
    "now() BETWEEN ts AND until_",
    "ts BETWEEN now() - INTERVAL '1' HOUR AND now() + INTERVAL '1' HOUR",
    "now() > ts AND now() > until_ AND ts < until_",
    "NOT (ts < now()) AND NOT until_ >= now()",
    "now() - ts < INTERVAL '1' HOUR",
    "ts - now() >= INTERVAL '1' HOUR",
    "INTERVAL '1' HOUR > now() - ts",
    "CAST(ts AS DATE) = current_date",
    "d = current_date()",
    "d > current_date - 1",
    "d <= current_date + INTERVAL '2' DAY",
    "ts > current_date",
    "ts <= current_date",
    "ts >= current_date AND ts < current_date + INTERVAL '1' DAY",
    "ts < current_date + INTERVAL '30' MINUTE",
    "d < now()",
    "d >= now() - INTERVAL '1' DAY",
    "d < CAST(now() AS DATE)",
    "d = CAST(now() - INTERVAL '1' DAY AS DATE)",
    "ts >= date_trunc('hour', now())",
    "ts = date_trunc('minute', now())",
    "ts < date_trunc('week', now())",
    "ts > date_trunc('week', now() + INTERVAL '2' DAY) - INTERVAL '1' HOUR",
    "d + INTERVAL '1' MONTH > now()",
    "ts - INTERVAL '1' MONTH < now()",
    "greatest(ts, until_) > now()",
    "now() > TIMESTAMP '2026-03-02 00:00:00Z'",
    "now() > '2026-03-02 00:00:00Z'",
]


def _rows(connection: duckdb.DuckDBPyConnection) -> None:
    chance = random.Random(1)
    connection.execute("SET TimeZone = 'UTC'; CREATE MACRO unix_micros(t) AS epoch_us(t)")
    connection.execute("CREATE MACRO pmod(a, b) AS ((a % b) + b) % b")
    connection.execute("CREATE TABLE t (id BIGINT, ts TIMESTAMPTZ, until_ TIMESTAMPTZ, d DATE, n TIMESTAMP)")
    steps = [-1500, -90, -60, -59, -30, 0, 1, 30, 60, 90, 1500, 9000]
    for number in range(60):
        times = [
            START + timedelta(minutes=chance.choice(steps), microseconds=chance.choice([-1, 0, 0, 1])) for _ in "ab"
        ]
        day = (START + timedelta(days=chance.randint(-40, 3))).date()
        row = [number, *(None if chance.random() < 0.05 else v for v in (*times, day))]
        connection.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?)", [*row, times[0].replace(tzinfo=None)])
    connection.execute("CREATE TABLE clock (now TIMESTAMPTZ)")
    moments = {START + timedelta(minutes=m, microseconds=u) for m in (-60, 0, 60, 90, 1440) for u in (-1, 0, 1)}
    moments |= {datetime(2026, 3, 2, tzinfo=UTC) + timedelta(microseconds=u) for u in (-1, 0)}
    for moment in moments:
        connection.execute("INSERT INTO clock VALUES (?)", [moment])


def test_a_span_is_where_the_condition_holds() -> None:
    with duckdb.connect() as connection:
        _rows(connection)
        for condition in CONDITIONS:
            made = boolean(condition, SCHEMA, "where", clock=True)
            found = spans(made, SCHEMA)
            parts = [f"({_duck(e.spark())}) <= epoch_us(now)" for e in found.since]
            parts += [f"({_duck(e.spark())}) > epoch_us(now)" for e in found.until]
            parts += [] if found.plain is None else [_duck(found.plain.spark())]
            said = re.sub(r"now\(\)|current_timestamp(\(\))?|localtimestamp\(\)", "now", condition)
            said = re.sub(r"current_date(\(\))?", "CAST(now AS DATE)", said)
            wrong = connection.sql(
                f"SELECT t.*, now FROM t, clock WHERE coalesce({said}, false) <> coalesce({' AND '.join(parts)}, false)"
            ).to_arrow_table()
            assert len(connection.sql(f"SELECT 1 FROM t, clock WHERE {said}").to_arrow_table()), condition
            assert len(wrong) == 0, (condition, [e.spark() for e in (*found.since, *found.until)])


REFUSED = {
    "ts > now() OR id = 1": "cannot be used here",
    "now() <> ts": "cannot be used here",
    "ts NOT BETWEEN now() AND until_": "cannot be used here",
    "hour(now()) = 3": "cannot be compared",
    "CASE WHEN ts > now() THEN true END": "cannot be used here",
    "now() IS NOT NULL": "cannot be used here",
    "now() > now() - INTERVAL '1' HOUR": "on both sides",
    "ts + (now() - until_) > now()": "on both sides",
    "ts > now() - INTERVAL '1' MONTH": "no fixed length",
    "d > current_date - INTERVAL 1 YEAR": "no fixed length",
    "ts > date_trunc('month', now())": "cannot be compared",
    "ts > date_trunc('day', date_trunc('hour', now()) + INTERVAL '1' HOUR)": "cannot be compared",
    "unix_timestamp() > 3": "cannot be compared",
    "id > now()": "which is BIGINT",
    "s > now()": "which is STRING",
    "rand() > 0.5": "cannot be used here",
    "CAST('now' AS TIMESTAMP) > ts": "cannot be used here",
}


@pytest.mark.parametrize("condition", REFUSED)
def test_what_gives_no_span_is_refused(condition: str) -> None:
    with pytest.raises((Unsupported, SchemaError), match=REFUSED[condition]) as raised:
        spans(boolean(condition, SCHEMA, "where", clock=True), SCHEMA)
    assert raised.value.hint


def test_where_makes_one_step_of_all_conditions_with_now() -> None:
    stream = ms.Flow("f").source("s", ms.memory(), schema="id BIGINT, ts TIMESTAMP", event_time="ts")
    made = stream.where("ts > now() - INTERVAL '1' HOUR AND id > 3").where("ts < now()").step
    assert isinstance(made, Temporal)
    assert (len(made.since), len(made.until)) == (1, 1)
    assert made.condition.spark() == "`ts` > NOW() - INTERVAL '1' HOUR AND `ts` < NOW()"
    assert not isinstance(made.input, Temporal)


def test_now_stands_in_conditions_only() -> None:
    stream = ms.Flow("f").source("s", ms.memory(), schema="id BIGINT, ts TIMESTAMP", event_time="ts")
    for wrong in (lambda: stream.select(n="now()"), lambda: stream.key_by(d="current_date"), lambda: ms.expr("now()")):
        with pytest.raises(MillstreamError, match="cannot be used here") as raised:
            wrong()
        assert "where" in (raised.value.hint or "")
