"""Joins whose conditions use no column are what a batch gives."""

from __future__ import annotations

from pathlib import Path

from tests.sql.test_widths import follow


def test_conditions_of_a_join_may_use_no_column(tmp_path: Path) -> None:
    join = "SELECT x.k, y.v, x.s FROM a x {} JOIN b y ON x.k = y.k AND {}"
    conditions = ("1 IS NOT NULL", "1 IS NULL", "length('p') = 1", "length('p') = 2 OR x.v > y.v")
    made = [join.format(how, c) for how in ("", "LEFT") for c in conditions]
    follow(tmp_path, {f"v{i}": sql for i, sql in enumerate(made)}, seed=6)
