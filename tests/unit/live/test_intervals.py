"""Intervals and times without a zone in stored tables, questions, views and subscriptions, without Spark."""

# ruff: noqa: DTZ001 - times without a zone are what is tested
from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import MillstreamError
from millstream.result import Result
from tests.unit.live.world import Spoken, opened

HOUR, MICRO = timedelta(hours=1), timedelta(microseconds=1)
TABLE = (
    "CREATE TABLE trips (id BIGINT PRIMARY KEY, took INTERVAL DAY TO SECOND, left_at TIMESTAMP WITHOUT TIME ZONE, "
    "seen TIMESTAMP, stops ARRAY<INTERVAL DAY TO SECOND>)"
)
ROWS = """INSERT INTO trips VALUES
  (1, INTERVAL '1 02:03:04.5' DAY TO SECOND, TIMESTAMP_NTZ '2026-01-01 12:00:00', TIMESTAMP '2026-01-01 12:00:00',
   array(INTERVAL '1' HOUR)),
  (2, '0 01:00:00', '2026-01-02T00:00:00', NULL, NULL),
  (3, make_dt_interval(0, 1, 30), DATE '2026-01-01', NULL, NULL),
  (4, TIMESTAMP '9999-01-01 00:00:00' - TIMESTAMP '0001-01-02 00:00:00', NULL, NULL, NULL)"""
LONG = timedelta(days=1, hours=2, minutes=3, seconds=4.5)
FAR = timedelta(days=3651693)
NOON = datetime(2026, 1, 1, 12)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoken]:
    with opened(Path(tmp_path_factory.mktemp("intervals")) / "home") as spoken:
        spoken.say(TABLE, ROWS)
        yield spoken


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("SELECT took FROM trips ORDER BY took", [HOUR, 1.5 * HOUR, LONG, FAR]),
        ("SELECT left_at FROM trips ORDER BY id", [NOON, datetime(2026, 1, 2), datetime(2026, 1, 1), None]),
        ("SELECT stops FROM trips WHERE id = 1", [[HOUR]]),
        ("SELECT id FROM trips WHERE took > INTERVAL '1' HOUR ORDER BY id", [1, 3, 4]),
        ("SELECT sum(took) FROM trips WHERE id < 4", [LONG + 2.5 * HOUR]),
        ("SELECT sum(took) FILTER (WHERE id = 2) FROM trips", [HOUR]),
        ("SELECT sum(x) FROM (SELECT seen - left_at AS x FROM trips)", [timedelta(0)]),
        ("SELECT sum(took) OVER (ORDER BY id) FROM trips WHERE id > 1 AND id < 4 ORDER BY id", [HOUR, 2.5 * HOUR]),
        ("SELECT avg(x) FROM VALUES (INTERVAL '1' MICROSECOND), (INTERVAL '0' SECOND) AS v(x)", [MICRO]),
        ("SELECT min(took) FROM trips", [HOUR]),
        ("SELECT took * 2 FROM trips WHERE id = 2", [2 * HOUR]),
        ("SELECT took / 2 FROM trips WHERE id = 2", [HOUR / 2]),
        ("SELECT -took FROM trips WHERE id = 2", [-HOUR]),
        ("SELECT left_at + took FROM trips WHERE id = 2", [datetime(2026, 1, 2, 1)]),
        ("SELECT seen + took FROM trips WHERE id = 1", [NOON.replace(tzinfo=UTC) + LONG]),
        ("SELECT left_at = seen FROM trips WHERE id = 1", [True]),
        ("SELECT extract(DAY FROM took) FROM trips WHERE id = 1", [1]),
        ("SELECT extract(HOUR FROM took) FROM trips WHERE id = 1", [2]),
        ("SELECT extract(HOUR FROM left_at) FROM trips WHERE id = 1", [12]),
        ("SELECT date_trunc('day', left_at) FROM trips WHERE id = 1", [datetime(2026, 1, 1, tzinfo=UTC)]),
        ("SELECT year(left_at) FROM trips WHERE id = 1", [2026]),
        ("SELECT count(*) FROM (SELECT took, left_at FROM trips GROUP BY took, left_at)", [4]),
        ("SELECT repeat('x', 2) || CAST(took AS STRING) FROM trips WHERE id = 4",
         ["xxINTERVAL '3651693 00:00:00' DAY TO SECOND"]),
        ("SELECT made - made FROM (SELECT localtimestamp() AS made)", [timedelta(0)]),
    ],
)  # fmt: skip
def test_questions(home: Spoken, asked: str, expected: list[Any]) -> None:
    assert [next(iter(r.values())) for r in home.rows(asked)] == expected


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SELECT INTERVAL 1 MONTH AS x", "an interval of months or years"),
        ("SELECT CAST('an hour' AS INTERVAL DAY TO SECOND) AS x", "cannot become INTERVAL DAY TO SECOND"),
        ("SELECT INTERVAL '1 25' DAY TO HOUR AS x", "is not an interval"),
        ("INSERT INTO trips (id, took) VALUES (9, 3600)", "it is not an interval like"),
        ("INSERT INTO trips (id, left_at) VALUES (9, '2026-01-01T00:00:00Z')", "it has a time zone"),
        ("CREATE TABLE m (x INTERVAL YEAR TO MONTH)", "add_months"),
        ("CREATE TABLE m (x INTERVAL)", "INTERVAL DAY TO SECOND"),
        ("CREATE TABLE m (x DATETIME)", "TIMESTAMP_NTZ for a time of no zone"),
    ],
)
def test_what_does_not_work_says_what_to_write(home: Spoken, statement: str, said: str) -> None:
    with pytest.raises(MillstreamError) as caught:
        home.say(statement)
    assert said in str(caught.value)


SOURCE = (
    "CREATE SOURCE jobs (id BIGINT, kind STRING, begun TIMESTAMP, done TIMESTAMP, shown TIMESTAMP_NTZ, "
    "WATERMARK FOR shown AS shown - INTERVAL '4' SECOND) FROM LOG('jobs')"
)
VIEWS = (
    "CREATE VIEW took AS SELECT id, done - begun AS took, shown FROM jobs",
    "CREATE VIEW totals AS SELECT kind, sum(done - begun) AS total, avg(done - begun) AS mean FROM jobs GROUP BY kind",
    "CREATE VIEW slow AS SELECT kind, total FROM totals WHERE total > INTERVAL '1' HOUR",
    "CREATE VIEW hours AS SELECT window_start, max(done - begun) AS most "
    "FROM TUMBLE(jobs, DESCRIPTOR(shown), INTERVAL '1' HOUR) GROUP BY window_start, window_end",
)


def test_a_difference_of_two_times_goes_from_a_source_to_every_output(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as spoken:
        spoken.say(SOURCE, *VIEWS)
        spoken.say(
            "INSERT INTO jobs VALUES (1, 'a', '2026-01-01T00:00:00Z', '2026-01-01T01:00:00Z', '2026-01-01 08:00:00'), "
            "(2, 'a', '2026-01-01T00:00:00Z', '2026-01-02T01:00:00.000001Z', '2026-01-01 08:30:00')"
        )
        spoken.perform("jobs")
        both = 26 * HOUR + MICRO
        assert spoken.rows("SELECT * FROM totals") == [{"kind": "a", "total": both, "mean": 13 * HOUR + MICRO}]
        assert spoken.rows("SELECT * FROM slow") == [{"kind": "a", "total": both}]
        assert spoken.rows("SELECT most FROM hours") == [{"most": 25 * HOUR + MICRO}]
        assert [(r["column"], r["type"]) for r in spoken.rows("DESCRIBE took")] == [
            ("id", "BIGINT"),
            ("took", "INTERVAL DAY TO SECOND"),
            ("shown", "TIMESTAMP_NTZ"),
        ]
    with opened(tmp_path / "home") as spoken:
        spoken.say("INSERT INTO jobs VALUES (3, 'b', '2026-01-01T00:00:01Z', '2026-01-01T00:00:00Z', NULL)")
        spoken.say(
            "INSERT INTO jobs VALUES (4, 'b', '2026-01-01T00:00:01Z', '2026-01-01T00:00:00Z', DATE '2026-01-01')"
        )
        spoken.perform("jobs")
        assert spoken.rows("SELECT total FROM totals WHERE kind = 'b'") == [{"total": timedelta(seconds=-1)}]
        found = spoken.say("SELECT took, shown FROM took WHERE id = 1").result
        assert isinstance(found, Result)
        assert "INTERVAL '0 01:00:00' DAY TO SECOND  2026-01-01 08:00:00" in str(found)
