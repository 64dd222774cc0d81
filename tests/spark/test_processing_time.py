"""PROCTIME() beside a WATERMARK, through Spark: windows by the clock of the epoch, and by event time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from millstream.clock import ManualClock
from millstream.home import Home

pytestmark = pytest.mark.spark

SQL = """
CREATE SOURCE visits (who BIGINT, pages ARRAY<STRING>, ts TIMESTAMP, seen AS PROCTIME(), WATERMARK FOR ts AS ts)
    FROM LOG('visits');
CREATE VIEW by_clock AS SELECT window_start, count(*) AS n FROM TUMBLE(visits, seen, INTERVAL '1' MINUTE)
    GROUP BY window_start, window_end;
CREATE VIEW by_event AS SELECT window_start, count(*) AS n FROM TUMBLE(visits, ts, INTERVAL '1' MINUTE)
    GROUP BY window_start, window_end;
CREATE VIEW pages AS SELECT page, seen FROM visits LATERAL VIEW explode(pages) p AS page;
"""
START = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_clock_of_an_epoch_is_a_column_of_its_records(spark: object, tmp_path: Path) -> None:
    clock = ManualClock(round(START.timestamp() * 1_000_000))
    with Home(tmp_path / "home", clock=clock) as home:
        home.sql(SQL)
        for who in (1, 2):
            clock.advance(90 * 10**6)
            home.sql(f"INSERT INTO visits VALUES ({who}, array('a'), TIMESTAMP '2026-01-01 00:00:05+00:00')")
            assert sum(r["n"] for r in home.sql("SELECT n FROM by_clock").to_dicts()) == who
        found = {v: [tuple(r.values()) for r in home.sql(f"SELECT * FROM {v} ORDER BY 1, 2").to_dicts()] for v in VIEWS}
        assert found == {
            "by_clock": [(START + timedelta(minutes=1), 1), (START + timedelta(minutes=3), 1)],
            "by_event": [(START, 2)],
            "pages": [("a", START + timedelta(seconds=90)), ("a", START + timedelta(seconds=180))],
        }
        clock.advance(10**6)  # a question over the records themselves reads them when it is asked
        asked = home.sql("SELECT min(seen) AS first, max(seen) AS last FROM HISTORY OF visits").to_dicts()
        assert [tuple(r.values()) for r in asked] == [(START + timedelta(seconds=181),) * 2]


VIEWS = ("by_clock", "by_event", "pages")
