"""The right answer, from DuckDB over all data at once, and the comparison with what a system gave."""

from __future__ import annotations

from pathlib import Path

import duckdb

from bench.cases import Comparison
from bench.data import DataSet


def expected(case: Comparison, data: DataSet, folder: Path) -> Path:
    """The file with the rows that every system must give; made if it is not there yet."""
    kind = f"gap-{case.gap}" if case.gap else f"{case.size}-{case.slide}"
    out = folder / f"expected-{case.key}-{kind}-{data.digest[:12]}.parquet"
    if not out.exists():
        bids = next(folder for form in ("parquet", "json") if (folder := data.folder(form)).is_dir())
        write(sessions(bids, case.key, case.gap) if case.gap else windows(bids, case.key, case.size, case.slide), out)
    return out


def rows(bids: Path) -> str:
    """SQL for the rows of a folder of Parquet files, or of JSON files if it has none."""
    if any(bids.glob("*.parquet")):
        return f"read_parquet('{bids}/*.parquet')"
    columns = "{auction: 'BIGINT', bidder: 'BIGINT', price: 'BIGINT', date_time: 'TIMESTAMP'}"
    return f"read_json('{bids}/*.json', format = 'newline_delimited', columns = {columns})"


def windows(bids: Path, key: str, size: int, slide: int) -> str:
    """SQL for the bids per key in windows of seconds: key, start_us, bids."""
    micros, per_row = slide * 1_000_000, size // slide
    # A row belongs to the windows that start up to size - slide before its own slice of time.
    return f"""
        WITH slices AS (
            SELECT {key} AS key, epoch_us(date_time) // {micros} AS slice, count(*) AS bids
            FROM {rows(bids)} GROUP BY ALL)
        SELECT key, (slice - i) * {micros} AS start_us, sum(bids)::BIGINT AS bids
        FROM slices, range({per_row}) AS earlier(i) GROUP BY ALL"""


def sessions(bids: Path, key: str, gap: int) -> str:
    """SQL for the bids per key in sessions: key, start_us, end_us, bids. A bid exactly a gap after the one before it
    belongs to the same session.
    """
    micros = gap * 1_000_000
    return f"""
        WITH bids AS (
            SELECT {key} AS key, epoch_us(date_time) AS us FROM {rows(bids)}),
        begun AS (
            SELECT key, us, coalesce(us - lag(us) OVER (PARTITION BY key ORDER BY us) > {micros}, true) AS begins
            FROM bids),
        numbered AS (
            SELECT key, us, sum(begins::INT) OVER (PARTITION BY key ORDER BY us) AS session FROM begun)
        SELECT key, min(us) AS start_us, max(us) + {micros} AS end_us, count(*) AS bids
        FROM numbered GROUP BY key, session"""


def counted(bids: Path, key: str, size: int, slide: int) -> str:
    """SQL for windows of `size` bids per key in event time, one ending every `slide` bids: key, number, start_us,
    end_us, bids. Window i holds the last `size` of the first (i + 1) * slide bids, and is there with its first bid.
    """
    return f"""
        WITH numbered AS (
            SELECT {key} AS key, epoch_us(date_time) AS us,
                   row_number() OVER (PARTITION BY {key} ORDER BY date_time) - 1 AS n
            FROM {rows(bids)})
        SELECT key, n // {slide} + later AS number, min(us) AS start_us, max(us) AS end_us, count(*) AS bids
        FROM numbered, range({-(-size // slide)}) AS more(later)
        WHERE n >= (n // {slide} + later + 1) * {slide} - {size} GROUP BY ALL"""


def write(query: str, out: Path) -> Path:
    """Keep the rows of a query; the file is there whole or not at all."""
    with _connect(out.parent) as duck:
        duck.execute(f"COPY ({query}) TO '{out}.tmp' (FORMAT parquet)")
    return Path(f"{out}.tmp").rename(out)


def difference(right: Path, given: Path) -> str | None:
    """What is wrong with the rows in `given`, or None. All columns but `bids` are unique in `right`."""
    with _connect(right.parent) as duck:
        duck.execute(f"CREATE VIEW r AS FROM '{right}'")
        duck.execute(f"CREATE VIEW g AS FROM '{given}'")
        window = ", ".join(name for name in duck.table("r").columns if name != "bids")
        wrong = duck.execute(
            f"""SELECT count(*) FILTER (g.bids IS NULL), count(*) FILTER (r.bids IS NULL),
                       count(*) FILTER (r.bids <> g.bids)
                FROM r FULL JOIN g USING ({window})"""
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
