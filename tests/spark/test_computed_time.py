"""An event time that is computed from text: rows that it fails on are errors of the source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import millstream as ms

pytestmark = pytest.mark.spark

SQL = """
CREATE SOURCE notes (id BIGINT, said STRING, ts AS to_timestamp(said, 'dd.MM.yyyy HH:mm:ss'),
    WATERMARK FOR ts AS ts - INTERVAL '4' SECOND) FROM LOG('notes');
CREATE SOURCE lines (id BIGINT, ms BIGINT, ts AS timestamp_millis(1000000 div ms * ms),
    WATERMARK FOR ts AS ts - INTERVAL '4' SECOND) FROM FILES('{}', format = 'json');
CREATE VIEW per_minute AS SELECT window_start, count(*) AS n FROM TUMBLE(notes, ts, INTERVAL '1' MINUTE)
    GROUP BY window_start, window_end EMIT ON CLOSE;
CREATE VIEW newest AS SELECT max(ts) AS ts, count(*) AS n FROM lines;
INSERT INTO notes VALUES (1, '01.01.2026 09:00:00'), (2, 'soon'), (3, NULL), (4, '31.02.2026 00:00:00'),
    (5, '01.01.2026 09:00:30'), (6, '01.01.2199 09:00:00');
"""


def test_rows_without_a_readable_time_are_errors_of_their_source(spark: object, tmp_path: Path) -> None:
    folder = tmp_path / "lines"
    folder.mkdir()
    rows = [{"id": 1, "ms": 10}, {"id": 2, "ms": 0}, {"id": 3}, {"id": 4, "ms": 1}]
    (folder / "a.json").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with ms.open(tmp_path / "home") as home:
        home.sql(SQL.replace("{}", str(folder)))
        for row in ("7, '01.01.2026 09:02:00'", "8, '01.01.2026 09:00:05'"):
            home.sql(f"SELECT * FROM per_minute; INSERT INTO notes VALUES ({row})")
        closed = home.sql("SELECT window_start, n FROM per_minute").to_dicts()
        assert [(r["window_start"].hour, r["n"]) for r in closed] == [(9, 2)]
        late = home.sql("SELECT record FROM `per_minute$late`").to_dicts()
        assert [json.loads(r["record"])["id"] for r in late] == [8]
        errors = home.sql("SELECT reason, raw, `offset` FROM `notes$errors` ORDER BY `offset`").to_dicts()
        assert [(json.loads(r["raw"])["id"], r["offset"]) for r in errors] == [(2, 1), (3, 2), (4, 3), (6, 5)]
        assert {"ts" in json.loads(r["raw"]) for r in errors} == {False}
        assert len({r["reason"] for r in errors[:3]}) == 1 != len({r["reason"] for r in errors})
        history = home.sql("SELECT count(*) AS n, max(ts) AS last FROM HISTORY OF notes").to_dicts()
        assert [(r["n"], r["last"].year) for r in history] == [(5, 2199)]
        assert [(r["n"], r["ts"].timestamp()) for r in home.sql("SELECT * FROM newest").to_dicts()] == [(2, 1000.0)]
        wrong = home.sql("SELECT raw, `offset` FROM `lines$errors` ORDER BY `offset`").to_dicts()
        assert [(json.loads(r["raw"])["id"], r["offset"]) for r in wrong] == [(2, 1), (3, 2)]
        with pytest.raises(ms.MillstreamError) as refused:
            home.sql("""CREATE SOURCE odd (a ARRAY<INT>, ts AS element_at(a, 1), WATERMARK FOR ts AS ts)
                FROM LOG('odd');
                CREATE VIEW v AS SELECT count(*) AS n FROM odd; SELECT * FROM v""")
        assert "Exception" not in str(refused.value)
