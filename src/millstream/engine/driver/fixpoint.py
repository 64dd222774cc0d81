"""Runs the iterations of a loop in an embedded DuckDB. The kernel of loops calls it as a service.

The tables are small enough for the driver. An iteration takes milliseconds there, whereas Spark would need a job for
each.
"""

from __future__ import annotations

import threading
from typing import Any

import polars as pl

from millstream.errors import Unsupported
from millstream.model.types.duckdb_values import arrow_table
from millstream.plan.operators.relations.loop import OTHER, ROWS, SEED, Loop, quoted

_local = threading.local()


def repeat(what: Loop, tables: list[pl.DataFrame]) -> pl.DataFrame:
    """Repeat the body of a loop over its initial rows and its second input."""
    duck = _engine()
    seed = tables[0].to_arrow()
    duck.register(SEED, seed)
    duck.register(OTHER, (tables[1] if len(tables) > 1 else tables[0]).to_arrow())
    try:
        kinds = duck.sql(f"SELECT * FROM {SEED}").types
        names = ", ".join(quoted(n) for n in what.names)
        cast = ", ".join(
            f"CAST(#{i + 1} AS {k}) AS {quoted(n)}" for i, (n, k) in enumerate(zip(what.names, kinds, strict=True))
        )
        body = f"SELECT {cast} FROM ({what.body})"
        return _kept_rows(duck, what, names, body) if what.keep else _replaced_rows(duck, what, names, body)
    finally:
        for name in (SEED, OTHER):
            duck.unregister(name)
        for name in (ROWS, "known_rows"):
            duck.execute(f"DROP TABLE IF EXISTS {name}")


def _kept_rows(duck: Any, what: Loop, names: str, body: str) -> pl.DataFrame:
    """Iterations that add rows, without duplicates unless copies count."""
    once = "" if what.copies else "DISTINCT "
    duck.execute(f"CREATE TEMP TABLE known_rows AS SELECT {once}{names} FROM {SEED}")
    duck.execute(f"CREATE TEMP TABLE {ROWS} AS SELECT * FROM known_rows")
    for _ in range(what.most):
        known = "" if what.copies else " EXCEPT SELECT * FROM known_rows"
        duck.execute(f"CREATE OR REPLACE TEMP TABLE new_rows AS {body}{known}")
        if not duck.sql("SELECT count(*) FROM new_rows").fetchall()[0][0]:
            return _sorted(duck, "known_rows", names)
        duck.execute("INSERT INTO known_rows SELECT * FROM new_rows")
        duck.execute(
            f"CREATE OR REPLACE TEMP TABLE {ROWS} AS SELECT * FROM {'new_rows' if what.linear else 'known_rows'}"
        )
    if what.settle:
        raise _endless(what)
    return _sorted(duck, "known_rows", names)


def _replaced_rows(duck: Any, what: Loop, names: str, body: str) -> pl.DataFrame:
    """Iterations that replace all rows."""
    duck.execute(f"CREATE TEMP TABLE {ROWS} AS SELECT {names} FROM {SEED}")
    for _ in range(what.most):
        duck.execute(f"CREATE OR REPLACE TEMP TABLE new_rows AS SELECT * FROM ({body}) ORDER BY ALL")
        same = f"(SELECT * FROM new_rows EXCEPT ALL SELECT * FROM {ROWS})"
        back = f"(SELECT * FROM {ROWS} EXCEPT ALL SELECT * FROM new_rows)"
        changed = duck.sql(f"SELECT count(*) FROM ({same} UNION ALL {back})").fetchall()[0][0]
        duck.execute(f"CREATE OR REPLACE TEMP TABLE {ROWS} AS SELECT * FROM new_rows")
        if not changed:
            return _sorted(duck, ROWS, names)
    if what.settle:
        raise _endless(what)
    return _sorted(duck, ROWS, names)


def _sorted(duck: Any, table: str, names: str) -> pl.DataFrame:
    found = pl.from_arrow(arrow_table(duck.sql(f"SELECT {names} FROM {table} ORDER BY ALL")))
    assert isinstance(found, pl.DataFrame)
    return found


def _endless(what: Loop) -> Unsupported:
    return Unsupported(
        f"a loop did not come to an end within {what.most:,} rounds",
        hint="bound it in its body, allow more rounds (most=...), or accept the rows at that point (settle=False)",
    )


def _engine() -> Any:
    if not hasattr(_local, "duck"):
        import duckdb

        _local.duck = duckdb.connect(config={"threads": 1})
        _local.duck.execute("SET TimeZone = 'UTC'")
        _local.duck.execute("SET default_null_order = 'nulls_first'")
    return _local.duck
