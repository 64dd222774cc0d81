"""The right answer, from DuckDB over all data at once, and the comparison with what a system gave."""

from __future__ import annotations

from pathlib import Path

import duckdb

from bench.cases import Comparison
from bench.data import DataSet


def expected(case: Comparison, data: DataSet, folder: Path) -> Path:
    """The file with the rows that every system must give: key, start_us, bids."""
    out = folder / f"expected-{case.key}-{case.size}-{case.slide}-{data.digest[:12]}.parquet"
    if out.exists():
        return out
    slide, per_row = case.slide * 1_000_000, case.size // case.slide
    with _connect(folder) as duck:
        # A row belongs to the windows that start up to size - slide before its own slice of time.
        duck.execute(
            f"""COPY (
                WITH slices AS (
                    SELECT {case.key} AS key, epoch_us(date_time) // {slide} AS slice, count(*) AS bids
                    FROM read_parquet('{data.folder("parquet")}/*.parquet') GROUP BY ALL)
                SELECT key, (slice - i) * {slide} AS start_us, sum(bids)::BIGINT AS bids
                FROM slices, range({per_row}) AS earlier(i) GROUP BY ALL
            ) TO '{out}.tmp' (FORMAT parquet)"""
        )
    Path(f"{out}.tmp").rename(out)
    return out


def difference(right: Path, given: Path) -> str | None:
    """What is wrong with the rows in `given`, or None. Keys and windows are unique in `right`."""
    with _connect(right.parent) as duck:
        duck.execute(f"CREATE VIEW r AS FROM '{right}'")
        duck.execute(f"CREATE VIEW g AS FROM '{given}'")
        wrong = duck.execute(
            """SELECT count(*) FILTER (g.bids IS NULL), count(*) FILTER (r.bids IS NULL),
                      count(*) FILTER (r.bids <> g.bids)
               FROM r FULL JOIN g USING (key, start_us)"""
        ).fetchone()
        counts = duck.execute("SELECT (SELECT count(*) FROM r), (SELECT count(*) FROM g)").fetchone()
    assert wrong is not None
    assert counts is not None
    missing, surplus, different = wrong
    if not any(wrong) and counts[0] == counts[1]:
        return None
    return f"{counts[1]:,} rows for {counts[0]:,}: {missing:,} missing, {surplus:,} extra, {different:,} differ"


def _connect(folder: Path) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"temp_directory": str(folder / "duckdb"), "memory_limit": "6GB"})
