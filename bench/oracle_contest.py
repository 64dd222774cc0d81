"""The right answer to a contest, from DuckDB over all events at once, and the comparison with what a system gave.

Rows are compared as a multiset: their number, and the sum of a hash of each. Columns are compared by place, because
systems name some of them differently; times as microseconds, numbers with a fraction to three digits.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from bench.contests import Contest
from bench.data import House
from bench.peers.protocol import COLUMNS

_FRACTIONS = ("DOUBLE", "FLOAT", "DECIMAL")


def expected(contest: Contest, house: House, folder: Path) -> Path:
    """The file with the rows that every system must give; made if it is not there yet."""
    asked = hashlib.sha256(contest.right.encode()).hexdigest()[:8]
    out = folder / f"expected-{contest.name}-{asked}-{house.digest[:12]}.parquet"
    if not out.exists():
        with _connect(folder) as duck:
            for kind, place in house.folders.items():
                fields = (pair.strip().split(" ") for pair in COLUMNS[kind].split(","))
                types = {
                    name: kind.replace("STRING", "VARCHAR").replace("TIMESTAMP", "TIMESTAMPTZ") for name, kind in fields
                }
                duck.execute(
                    f"CREATE VIEW {kind} AS FROM read_json('{place}/json/*.json', format='newline_delimited', "
                    f"columns={types!r})"
                )
            if contest.right == "falls":
                duck.register("answer", falls(duck))
                query = "FROM answer"
            else:
                query = contest.right
            duck.execute(f"COPY ({query}) TO '{out}.tmp' (FORMAT parquet)")
        Path(f"{out}.tmp").rename(out)
    return out


def falls(duck: duckdb.DuckDBPyConnection) -> pa.Table:
    """The matches of the pattern A B+ C over the prices of each auction: a fall and then a rise; the next match begins
    behind the last row of this one.
    """
    ordered = "SELECT auction, price, dateTime FROM bid ORDER BY auction, dateTime, price"
    bids = duck.sql(ordered).to_arrow_table()
    auctions, prices = bids["auction"].to_pylist(), bids["price"].to_pylist()
    times = bids["dateTime"].cast(pa.int64()).to_pylist()
    found: list[tuple[int, ...]] = []
    start, end = 0, len(auctions)
    while start < end:
        key, at = auctions[start], start + 1
        while at < end and auctions[at] == key and prices[at] < prices[at - 1]:
            at += 1
        if at > start + 1 and at < end and auctions[at] == key and prices[at] > prices[at - 1]:
            found.append((key, prices[start], prices[at - 1], prices[at], times[at]))
            start = at + 1
        else:
            start += 1
    columns = list(zip(*found, strict=True)) or [()] * 5
    types = [pa.int64()] * 4 + [pa.timestamp("us", "UTC")]
    names = ("auction", "was", "low", "up", "ended")
    return pa.table({name: pa.array(list(c), t) for name, c, t in zip(names, columns, types, strict=True)})


def difference(contest: Contest, right: Path, given: Path) -> str | None:
    """What is wrong with the rows in `given`, or None."""
    with _connect(right.parent) as duck:
        found = _digest(duck, contest, right, given)
        wanted = _digest(duck, contest, right, right)
        if found == wanted:
            return None
        rows = f"{found[0]:,} rows for {wanted[0]:,}"
        return f"{rows}: {_example(duck, contest, right, given)}"


def _texts(duck: duckdb.DuckDBPyConnection, contest: Contest, right: Path, path: Path) -> list[str]:
    """An expression for each column that is compared, as text; `right` says which place a column has."""
    known = duck.execute(f"DESCRIBE FROM '{right}'").fetchall()
    here = duck.execute(f"DESCRIBE FROM '{path}'").fetchall()
    if len(here) != len(known):
        raise SystemExit(f"{contest.name}: {len(here)} columns for {len(known)} in {path}")
    wanted = [name.strip().lower() for name in contest.compares.split(",")]
    texts = []
    for (name, kind, *_), (their_name, their_kind, *_) in zip(known, here, strict=True):
        if contest.compares != "*" and name.lower() not in wanted:
            continue
        column = f'"{their_name}"'
        if kind.startswith("TIMESTAMP"):
            column = column if their_kind == "BIGINT" else f"epoch_us({column})"
        elif any(k.startswith(_FRACTIONS) for k in (kind, their_kind)):
            column = f"round({column}::DOUBLE, 3)"
        texts.append(f"coalesce({column}::VARCHAR, 'null')")
    return texts


def _digest(duck: duckdb.DuckDBPyConnection, contest: Contest, right: Path, path: Path) -> tuple[Any, ...]:
    texts = ", ".join(_texts(duck, contest, right, path))
    row = duck.execute(f"SELECT count(*), sum(hash(concat_ws('|', {texts}))::HUGEINT) FROM '{path}'").fetchone()
    assert row is not None
    return row


def _example(duck: duckdb.DuckDBPyConnection, contest: Contest, right: Path, given: Path) -> str:
    """A row that is missing and one that should not be there."""
    texts = {path: ", ".join(_texts(duck, contest, right, path)) for path in (right, given)}
    said = []
    for what, there, not_there in (("missing", right, given), ("extra", given, right)):
        sides = (f"SELECT concat_ws('|', {texts[p]}) AS row FROM '{p}'" for p in (there, not_there))
        row = duck.execute(f"SELECT row FROM ({' EXCEPT ALL '.join(sides)}) LIMIT 1").fetchone()
        said.append(f"{what} {row[0][:120] if row else 'none'}")
    return ", ".join(said)


def _connect(folder: Path) -> duckdb.DuckDBPyConnection:
    duck = duckdb.connect(config={"temp_directory": str(folder / "duckdb"), "memory_limit": "6GB"})
    duck.execute("SET TimeZone = 'UTC'")
    return duck
